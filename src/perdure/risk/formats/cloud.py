"""Credentials of clouds, platforms, secret stores and the network."""

from __future__ import annotations

from typing import Final

TOKENS: Final = """
@api_key
aws_access_key_id             [AKIA|ASIA|ABIA|ACCA]{u16}
aws_mws_token                 amzn.mws.{uuid}
@cloud_key
azure_storage_key             AccountKey={b86-90}
azure_shared_access_key       SharedAccessKey={b43-48}
azure_sas_signature           &sig={e43-75}%3D
azure_client_secret           {a3}8Q~{s31-40}
azure_client_secret_old       {a3}7Q~{s31-40}
azure_function_key            {w44}AzFu{w5-10}
azure_devops_token            {a76}AZDO{a4}
azure_search_key              {a42}AzSe{a6}
azure_cosmos_key              {b72-78}ACDb{b6-10}
azure_registry_key            {b40-46}+ACR{a6}
azure_batch_key               {b72-78}+ABa{b6-10}
azure_storage_modern_key      {b72-78}+ASt{b6-10}
azure_event_hub_key           {b32-36}+AEh{b5-9}
azure_service_bus_key         {b32-36}+ASb{b5-9}
azure_iot_key                 {b32-36}AIoT{b5-9}
azure_redis_key               {b32-36}AzCa{b5-9}
azure_openai_key              {a52}JQQJ99{a26}
azure_openai_key_new          {a52}AAAAAC{a26}
google_api_key                AIza{w35}
google_oauth_token            ya29.{w40+}
google_client_secret          GOCSPX-{w28}
google_refresh_token          1//0{w40+}
google_hmac_key               GOOG1E{u50-60}
google_hmac_user_key          GOOG{u20}
firebase_server_key           AAAA{w7}:APA91b{w100+}
alibaba_access_key_id         LTAI{a12-24}
tencent_secret_id             AKID{a32}
volcengine_access_key         AKLT{a40-60}
baidu_access_key              ALTAK{a21-24}
huawei_access_key             HPUA{u16}
yandex_api_key                AQVN{w35-38}
yandex_iam_token              t1.{w20+}.{w80-90}
yandex_static_key             YC[AJE|PC|MC|NC]{w18-40}
yandex_oauth_token            y0_{w50-60}
digitalocean_token            do[p|o|r]_v1_{h64}
digitalocean_spaces_key       DO00{u16}
scaleway_access_key           SCW{u17}
cloudflare_origin_key         v1.0-{h24}-{h146}
cloudflare_token              cf[ut|at|k]_{a40+}
heroku_token                  HRKU-{w36+}
fly_token                     fm[1a|1r|2]_{b80+}
fly_org_token                 fo1_{w43}
render_key                    rnd_{a28-40}
netlify_token                 nf[p|c|o|u|b]_{a36-40}
vercel_token                  vc[p|i|a|r]_{a24-60}
supabase_token                sbp_{h40}
supabase_oauth_token          sbp_oauth_{h40}
supabase_secret_key           sb_secret_{w28+}
doppler_personal_token        dp.pt.{a40-44}
doppler_service_token         dp.st.{s40-80}
doppler_cli_token             dp.ct.{a40-44}
doppler_account_token         dp.sa.{a40-44}
doppler_scim_token            dp.scim.{a40-44}
doppler_audit_token           dp.audit.{a40-44}
vault_service_token           hvs.{w24+}
vault_batch_token             hvb.{w90+}
vault_recovery_token          hvr.{w24+}
terraform_cloud_token         {a14}.atlasv1.{w60-70}
pulumi_token                  pul-{h40}
infracost_key                 ico-{a32}
infisical_service_token       st.{H24}.{H32}.{H32}
onepassword_service_token     ops_eyJ{b80+}
onepassword_secret_key        A3-{u6}-{u6}-{u5}-{u5}-{u5}-{u5}
age_secret_key                AGE-SECRET-KEY-1{u58}
age_quantum_key               AGE-SECRET-KEY-PQ-1{u58+}
tailscale_key                 tskey-[auth|api|client|scim|webhook]-{a10-20}-{a16-40}
tailscale_short_key           tskey-{l12}-{l22}
defined_networking_key        dnkey-{w26}-{w52}
dynatrace_token               dt0[c01|s01|s02|s08].{u24}.{u64}
backblaze_key                 K00{d1}{b27}
openshift_token               sha256~{w43}
rancher_token                 token-{l5}:{l54}
aiven_token                   AVNS_{w19-40}
akamai_token                  akab-{w16}-{w16}
"""
