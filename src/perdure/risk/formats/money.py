"""Keys of payment, commerce, shipping and currency services."""

from __future__ import annotations

from typing import Final

TOKENS: Final = """
@payment_key
stripe_secret_key             sk_[live|test|prod]_{a16-247}
stripe_restricted_key         rk_[live|test|prod]_{a16-247}
stripe_webhook_secret         whsec_{b30-90}
stripe_organization_key       sk_org_[live|test]_{a16-247}
square_access_token           sq0atp-{w22}
square_oauth_secret           sq0csp-{w43}
~square_client_id             sq0idp-{w22}
square_personal_token         EAAA{w56-64}
paypal_braintree_token        access_token$[production|sandbox]${l16}${h32}
braintree_key                 [production|sandbox]_{l8}_{l16}
shopify_token                 shp[at|ca|pa|ss|ua|ra]_{H32-40}
shopify_partner_token         prtapi_{h32}
shopify_storefront_token      shpsb_{H32}
shopify_cli_token             atkn_{a30+}
razorpay_key                  rzp_[live|test]_{a14-24}
flutterwave_secret_key        FLWSECK-{h32}-X
flutterwave_test_secret_key   FLWSECK_TEST-{a12+}
flutterwave_test_key          FLWSECK_TEST-{h32}-X
~flutterwave_public_key       FLWPUBK_TEST-{h32}-X
gocardless_token              [live|sandbox]_{w40}
plaid_access_token            access-[sandbox|development|production]-{uuid}
mollie_key                    [live|test]_{a30}
paddle_key                    pdl_[live|sdbx]_apikey_{l26}_{a20-24}_{a3}
mercadopago_token             [APP_USR|TEST]-{d13-19}-{d6}-{h32}-{d6-12}
xendit_key                    xnd_[production|development]_{a40+}
midtrans_key                  [SB-Mid|Mid]-server-{w20-28}
pagarme_key                   ak_[live|test]_{a30}
lob_key                       [live|test]_{h35}
~lob_public_key               [live|test]_pub_{h31}
easypost_key                  EZ[AK|TK]{a54}
shippo_token                  shippo_[live|test]_{h40}
duffel_token                  duffel_[live|test]_{w43}
polar_token                   polar_[oat|pat]_{w40+}
paystack_key                  sk_[live|test]_{h40}
ramp_secret                   ramp_[id|sec]_{a40+}
mercury_token                 secret-token:mercury_production_{w30+}
brex_token                    bxt_{a40}
"""
