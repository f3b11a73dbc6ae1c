"""Tokens of chat, social, mail and messaging services, and the addresses that let anyone post."""

from __future__ import annotations

from typing import Final

TOKENS: Final = """
@chat_token
slack_bot_token               xoxb-{d8-14}-{w18-60}
slack_user_token              xoxp-{d8-14}-{w18-90}
slack_legacy_token            xox[a|o|r|s]-{w18-90}
slack_refresh_token           xoxe-{d1}-{a50+}
slack_config_token            xoxe.xox[b|p]-{d1}-{a50+}
slack_app_token               xapp-{d1}-{u9-13}-{d10-14}-{l40-70}
slack_cookie                  xoxd-{b40+}
slack_client_token            xoxc-{d8-14}-{w18-90}
discord_bot_token             {m1}{a22-27}.{w6}.{w27-40}
discord_mfa_token             mfa.{w84}
telegram_bot_token            {d8-10}:AA{w32-33}
facebook_token                EAA{a80+}
instagram_token               IG[QV|QW|AA]{a60+}
twitter_bearer_token          AAAAAAAAAAAAAAAAAAAA{e20-70}%3D{e30-80}
linkedin_secret               WPL_AP1.{a16}.{b4-10}
twilio_api_key                SK{h32}
~twilio_account_sid           AC{h32}
line_token                    {b150-170}1O/w1cDnyilFU=
pubnub_secret_key             sec-c-{b40-60}
onesignal_key                 os_v2_[app|org]_{l90+}
intercom_token                dG9r{b44-64}
matrix_token                  syt_{a4-60}_{a20}_{a6}
@webhook
slack_webhook                 hooks.slack.com/services/T{u8-12}/B{u8-12}/{a20-26}
slack_workflow_webhook        hooks.slack.com/[workflows|triggers]/{a8-14}/{a10-20}/{a20-40}
discord_webhook               [discord|discordapp].com/api/webhooks/{d17-20}/{w60-72}
teams_webhook                 .webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/{a32}/{uuid}
google_chat_webhook           chat.googleapis.com/v1/spaces/{w8-14}/messages?key={w39}&token={w40-60}
~zapier_webhook               hooks.zapier.com/hooks/catch/{d5-10}/{a5-10}
ifttt_webhook                 maker.ifttt.com/trigger/{w1-40}/with/key/{w40-50}
make_webhook                  hook.[eu1|eu2|us1|us2].make.com/{a28-40}
@mail_key
sendgrid_key                  SG.{w16-24}.{w39-50}
mailgun_key                   key-{l32}
mailchimp_key                 {h32}-us{d1-2}
mandrill_key                  md-{w22}
brevo_api_key                 xkeysib-{h64}-{a16}
brevo_smtp_key                xsmtpsib-{h64}-{a16}
resend_key                    re_{a8}_{a20-28}
resend_short_key              re_{a30-36}
mailersend_key                mlsn.{h64}
klaviyo_key                   pk_{h34}
"""
