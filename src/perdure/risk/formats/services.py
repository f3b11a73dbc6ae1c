"""Keys of databases, monitoring, analytics, content and everyday services."""

from __future__ import annotations

from typing import Final

TOKENS: Final = """
@database_key
planetscale_token             pscale_tkn_{s32-64}
planetscale_password          pscale_pw_{s32-64}
planetscale_oauth_token       pscale_oauth_{s32-64}
neon_key                      napi_{l40+}
neon_password                 npg_{a10-16}
clickhouse_cloud_secret       4b1d{a38}
cockroach_key                 CCDB1_{a22}_{a40}
xata_key                      xau_{a30+}
convex_deploy_key             [prod|dev|preview]:{l3-40}|{b40+}
appwrite_key                  standard_{h200+}
airtable_token                pat{a14}.{h64}
airtable_oauth_secret         patso{a14}.{h64}
confluent_secret              cflt{b58-64}
mongodb_atlas_token           mdb_sa_sk_{w30+}
@api_key
newrelic_user_key             NRAK-{u27}
newrelic_browser_key          NRJS-{h19}
newrelic_insert_key           NRI[I|Q]-{w32}
newrelic_license_key          {h36}NRAL
newrelic_region_license_key   {l6}{h30}NRAL
grafana_cloud_token           glc_{b32+}
grafana_service_token         glsa_{a32}_{H8}
grafana_api_key               eyJrIjoi{b60+}
sentry_org_token              sntrys_eyJ{b40+}_{b40-45}
sentry_user_token             sntryu_{h64}
sentry_integration_token      sntryi_{h64}
honeycomb_key                 hc[aik|xik|lik|mik]_{l26}{a32}
honeycomb_short_key           hcaik_{l58}
~posthog_project_key          phc_{a40+}
posthog_key                   ph[x|r|a|s]_{a40+}
launchdarkly_key              [api|sdk|mob]-{uuid}
statsig_key                   secret-{a40+}
~statsig_client_key           client-{a30+}
~datadog_client_key           pub{h32}
statsig_console_key           console-{a40+}
segment_token                 sgp_{a64}
datadog_app_key               ddapp_{a34+}
axiom_token                   xa[at|pt]-{uuid}
notion_token                  ntn_{a40-50}
notion_legacy_secret          secret_{a43}
linear_key                    lin_api_{a40}
linear_oauth_token            lin_oauth_{a40+}
linear_webhook_secret         lin_wh_{a20+}
clickup_token                 pk_{d5-10}_{u32}
figma_token                   fig[d|o|u|or|ou]_{w40-44}
postman_key                   PMAK-{h24}-{h34}
postman_collection_key        PMAT-{u26}
readme_key                    rdme_{l70}
typeform_token                tfp_{s40-60}
contentful_token              CFPAT-{w43}
mapbox_secret_token           sk.eyJ{w50-90}.{w22}
mapbox_temporary_token        tk.eyJ{w50-90}.{w22}
frameio_token                 fio-u-{w64}
adobe_client_secret           p8e-{w32}
dropbox_token                 sl.{w130+}
dropbox_scoped_token          sl.u.{w130+}
hubspot_token                 pat-[na1|na2|eu1|ap1]-{uuid}
salesforce_token              00D{a12-15}!{s80+}
asana_token                   1/{d12-20}:{h32}
asana_token_new               2/{d12-20}/{d12-20}:{h32}
scalingo_token                tk-us-{w48}
maxmind_key                   {a6}_{a29}_mmk
rapidapi_key                  {l10}msh{l15}p1{h6}jsn{h12}
intra42_secret                s-s4t2[ud|af]-{h64}
settlemint_token              sm_[aat|pat|sat]_{a16-24}
authress_key                  [sc|ext|scauth]_{l5-30}.{l4-6}.acc_{w10-40}.{w30-120}
clerk_secret                  sk_[live|test]_{a40-60}
stytch_secret                 secret-[live|test]-{w36+}
courier_key                   pk_prod_{u28}
inngest_key                   signkey-[prod|test|branch]-{h32+}
trigger_key                   tr_[prod|dev|stg|preview]_{a20-24}
trigger_pat                   tr_pat_{a40}
retool_key                    retool_{a26+}
zuplo_key                     zpka_{h32}_{h8}
n8n_key                       n8n_api_{a40+}
bitrise_token                 bit[pat|wat]_{w30+}
censys_token                  censys_{a8}_{a20-30}
imagekit_key                  private_{b27-30}
cloudinary_url                cloudinary://{d12-16}:{w24-30}@
storyblok_token               sb_{a22}tt
thunderstore_token            tss_{a30+}
ubidots_token                 BBFF-{a30-40}
ubidots_key                   BBUS-{a30-40}
kagi_key                      kagi_{w40+}
rootly_key                    rootly_{h64}
snowflake_token               ver:{d1}-hint:{d5-20}-ETMs{b60+}
@crypto_key
bitcoin_extended_key          [xprv|yprv|zprv|tprv]{a107}
"""
