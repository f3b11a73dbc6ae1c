"""Credentials without a mark of their own: known by the vendor's name beside them and by their shape.

A line is an id, the words that name the vendor (`|` between them, any case, `_` for any joint or none), and the
template of the value. The value counts only where it is assigned to something called a key, token or the like.
"""

from __future__ import annotations

from typing import Final

KEYED: Final = """
@aws_secret
aws_secret_access_key         aws_secret|secret_access_key|aws_sec|amazon_secret|aws_key|aws   {b40}
aws_session_token             aws_session|session_token|aws                           {b100-2000}
@cloud_key
azure_client_secret_keyed     azure|arm_client|client_secret                          {s34-44}
azure_key_keyed               azure|cosmos|cognitive|speech_key                       {h32}
azure_openai_keyed            azure|cosmos                                            {b80-88}
azure_devops_keyed            azure|devops|ado_pat                                    {l52}
azure_apim_key                ocp_apim|apim                                           {h32}
alibaba_secret                alibaba|aliyun|alicloud|oss_access                      {a30}
tencent_secret_key            tencent|qcloud|cos_secret                               {a32}
digitalocean_keyed            digitalocean|spaces                                     {b43}
linode_token                  linode                                                  {h64}
hetzner_token                 hetzner|hcloud                                          {a64}
scaleway_secret_key           scaleway|scw_secret                                     {uuid}
vultr_key                     vultr                                                   {u36}
ibm_cloud_key                 ibm|bluemix|watson|softlayer                            {w44}
oracle_auth_token             oracle|oci_auth                                         {b20}
ovh_secret                    ovh                                                     {a32}
cloudflare_token_keyed        cloudflare|cf_api                                       {w40}
cloudflare_global_key         cloudflare|cf_api                                       {h37}
fastly_key                    fastly                                                  {w32}
heroku_key                    heroku                                                  {uuid}
railway_token                 railway                                                 {uuid}
vercel_token_keyed            vercel|zeit                                             {a24}
netlify_token_keyed           netlify                                                 {w40-46}
wasabi_secret                 wasabi|minio|s3_secret|r2_secret|b2_app|backblaze       {b31-64}
ngrok_token                   ngrok                                                   {a27}_{a21}
meraki_key                    meraki                                                  {h40}
zerotier_token                zerotier                                                {a32}
vault_token_keyed             vault                                                   s.{a24}
consul_token                  consul|nomad                                            {uuid}
wireguard_key                 wireguard|privatekey|presharedkey|wg_private            {b44}
@api_key
mistral_key                   mistral                                                 {a32}
cohere_key                    cohere|co_api                                           {a40}
together_key_keyed            together                                                {h64}
deepgram_key                  deepgram                                                {h40}
assemblyai_key                assemblyai|assembly_ai                                  {h32}
stability_key                 stability|dreamstudio                                   sk-{a48}
deepseek_key                  deepseek|dashscope|qwen|moonshot|kimi|siliconflow       sk-{a32-48}
wandb_key_keyed               wandb|weights                                           {h40}
comet_key                     comet                                                   {a25}
clarifai_key                  clarifai                                                {h32}
pinecone_key_keyed            pinecone                                                {uuid}
exa_key                       exa|serper|sambanova|hyperbolic|lepton|deepl            {uuid}
deepl_key                     deepl                                                   {uuid}:fx
serper_key                    serper                                                  {h40}
serpapi_key                   serpapi|serp_api                                        {h64}
ably_key                      ably                                                    {a6}.{a6}:{w40-50}
zhipu_key                     zhipu|bigmodel|glm                                      {h32}.{a16}
transifex_token               transifex                                               1/{h40}
sanity_token                  sanity                                                  sk{a80-200}
prismic_token                 prismic                                                 MC5{w60-200}
ai21_key                      ai21                                                    {a32}
openai_azure_key              openai                                                  {h32}
elevenlabs_keyed              elevenlabs|eleven_labs|xi_api                           {h32}
perplexity_keyed              perplexity                                              {w40-60}
datadog_api_key               datadog|dd_api|dd_app|dd_client                         {h32}
datadog_app_key_keyed         datadog|dd_app|dd_application                           {h40}
newrelic_key_keyed            newrelic|new_relic                                      {l40-64}
sumologic_key                 sumo|sumologic                                                    {a64}
sumologic_id                  sumo|sumologic                                                    su{a12}
splunk_token                  splunk|hec_token                                        {uuid}
elastic_key                   elastic|kibana                                          {b56-64}
logzio_token                  logz                                                    {a32}
loggly_token                  loggly|opsgenie|logentries|papertrail                   {uuid}
rollbar_token                 rollbar|bugsnag|airbrake|honeybadger|raygun|appsignal   {h32}
rollbar_long_token            rollbar                                                 {h128}
pagerduty_token               pagerduty|pd_api                                        {b20}
sentry_token                  sentry                                                  {h64}
honeycomb_keyed               honeycomb                                               {a22-32}
logdna_key                    logdna|mezmo                                            {h32}
mixpanel_key                  mixpanel|amplitude|heap                                 {h32}
segment_key                   segment                                                 {a32}
launchdarkly_keyed            launchdarkly                                            {w40}
algolia_key                   algolia                                                 {l32}
airtable_key                  airtable                                                {a17}
asana_secret                  asana                                                   {l32}
trello_key                    trello                                                  {h32}
trello_token_keyed            trello                                                  {h64}
jira_token                    jira|atlassian|confluence                               {a24}
notion_keyed                  notion                                                  {a43-50}
okta_token                    okta|ssws                                               00{w40}
auth0_secret                  auth0                                                   {w64}
onelogin_secret               onelogin|duo|pingfederate                               {a40-64}
contentful_keyed              contentful                                              {w43}
mapbox_keyed                  mapbox                                                  pk.{a60}.{a22}
facebook_app_token            facebook|fb_app|fb_access                               {d15-16}|{w27-40}
facebook_secret               facebook|fb_app|instagram|meta_app                      {h32}
twitter_key                   twitter|tw_consumer|x_api|consumer                      {a25}
twitter_secret                twitter|tw_consumer|x_api|consumer                      {a50}
twitter_access_secret         twitter|tw_access|x_access                              {a45}
twitter_access_token          twitter|x_access                                        {d15-25}-{a20-40}
linkedin_secret_keyed         linkedin                                                {a16}
reddit_secret                 reddit                                                  {w27-30}
spotify_secret                spotify                                                 {h32}
twitch_secret                 twitch                                                  {l30}
flickr_key                    flickr                                                  {h32}
pinterest_token               pinterest|tumblr|etsy                                   {a32-64}
etsy_key                      etsy                                                    {l24}
dropbox_secret                dropbox                                                 {l15}
box_secret                    box_client|boxsdk                                       {a32}
zendesk_token                 zendesk                                                 {a40}
freshdesk_key                 freshdesk|freshworks                                    {a20}
freshbooks_token              freshbooks                                              {h64}
intercom_key                  intercom                                                {b60}
hubspot_key                   hubspot                                                 {uuid}
salesforce_secret             salesforce|sfdc                                         {a19-64}
zoho_secret                   zoho                                                    {h42}
pipedrive_token               pipedrive                                               {h40}
monday_key                    monday                                                  {a32-64}
calendly_token                calendly|zoom|docusign|webex                            {w32-64}
typeform_keyed                typeform                                                {w40-60}
rapidapi_keyed                rapidapi|x_rapid                                        {w50}
shodan_key                    shodan                                                  {a32}
virustotal_key                virustotal|vt_api                                       {h64}
securitytrails_key            securitytrails|hibp|urlscan|greynoise                   {a32-64}
abuseipdb_key                 abuseipdb                                               {h80}
ipstack_key                   ipstack|ipinfo|ipgeolocation                            {h14-32}
openweather_key               openweather|owm|weatherapi|weatherbit                   {h31-32}
newsapi_key                   newsapi|tmdb|themoviedb|lastfm|last_fm                  {h32}
nasa_key                      nasa|datagov                                            {a40}
nytimes_key                   nytimes                                                 {a32}
finnhub_key                   finnhub                                                 {l20}
alphavantage_key              alphavantage|alpha_vantage                              {u16}
polygon_key                   polygon                                                 {a32}
quandl_key                    quandl                                                  {w20}
finicity_key                  finicity                                                {h32}
adafruit_key                  adafruit|aio_key                                        {w32}
beamer_token                  beamer                                                  b_{w44}
bitly_keyed                   bitly                                                   {h40}
imgur_secret                  imgur                                                   {h40}
unsplash_key                  unsplash|pexels                                         {w43-56}
giphy_key                     giphy                                                   {a32}
yelp_key                      yelp                                                    {w128}
foursquare_secret             foursquare|fsq                                          {u48}
looker_secret                 looker                                                  {a24}
tableau_token                 tableau                                                 {b22}=={b33}
privateai_key                 privateai|private_ai                                    {l32}
sendbird_key                  sendbird                                                {h40}
squarespace_key               squarespace                                             {uuid}
browserstack_keyed            browserstack                                            {a20}
saucelabs_key                 saucelabs|sauce                                         {uuid}
lokalise_keyed                lokalise|crowdin|transifex|phrase                       {h40-80}
postmark_token                postmark|x_postmark                                     {uuid}
codeclimate_token             codeclimate|cc_test                                     {h64}
@vcs_token
github_keyed                  github|gh_token|gh_pat                                  {h40}
gitlab_keyed                  gitlab                                                  {w20}
bitbucket_secret              bitbucket                                               {a32}
bitbucket_long_secret         bitbucket                                               {w64}
gitea_token                   gitea|forgejo|gogs|codeberg                             {h40}
gitter_token                  gitter                                                  {h40}
@package_token
jfrog_key_keyed               jfrog|artifactory                                       {a64-73}
npm_legacy_token              npm|authtoken                                           {uuid}
cocoapods_token               cocoapods|packagecloud                                  {h32-48}
@ci_token
travis_token                  travis                                                  {w22}
circleci_keyed                circle                                                  {h40}
drone_token                   drone                                                   {a32}
jenkins_token                 jenkins                                                 11{h32}
codecov_keyed                 codecov                                                 {uuid}
codecov_hex                   codecov|coveralls|codacy                                {a32}
snyk_keyed                    snyk                                                    {uuid}
sonar_keyed                   sonar                                                   {h40}
appveyor_token                appveyor|semaphore|codefresh|wercker                    {a20-64}
@payment_key
paypal_secret                 paypal                                                  {w60-80}
braintree_secret              braintree                                               {h32}
plaid_secret                  plaid                                                   {h30}
adyen_keyed                   adyen|worldpay|checkout                                 {w40-90}
square_keyed                  square                                                  {w40-64}
coinbase_secret               coinbase                                                {w64}
coinbase_key                  coinbase                                                {a32}
binance_key                   binance                                                 {a64}
kraken_secret                 kraken                                                  {b80-90}
kucoin_secret                 kucoin|bybit|okx                                        {uuid}
kucoin_access_key             kucoin|bybit                                            {h24}
bitfinex_key                  bitfinex|bitmex|bittrex|gemini|ftx                      {w32-48}
infura_key                    infura|alchemy|moralis|quicknode                        {w32-64}
etherscan_key                 etherscan|bscscan|polygonscan                           {u34}
recurly_key                   recurly|chargebee|dwolla                                {a32-50}
shopify_keyed                 shopify                                                 {h32}
woocommerce_key               woocommerce|consumer                                    c[k|s]_{h40}
taxjar_key                    taxjar|avalara                                          {h32}
@crypto_key
ethereum_private_key          eth|private_key|wallet|deployer|metamask                0x{H64}
ethereum_raw_key              eth|wallet|deployer|metamask                            {H64}
bitcoin_wif                   wif|bitcoin|btc|private_key|wallet                      [5|K|L]{a50-51}
@chat_token
twilio_auth_token             twilio                                                  {h32}
messagebird_key               messagebird|message_bird                                {a25}
vonage_secret                 vonage|nexmo                                            {a16}
discord_secret                discord                                                 {w32}
discord_key                   discord                                                 {h64}
telegram_keyed                telegram|tg_bot|bot_token                               {d5-16}:A{w33-35}
zoom_secret                   zoom                                                    {a32}
line_secret                   line_channel                                            {h32}
pusher_secret                 pusher                                                  {h20}
pushover_token                pushover                                                {a30}
stream_secret                 getstream|stream_api                                    {l64}
mattermost_token              mattermost|rocketchat                                   {l26}
plivo_token                   plivo|sinch|telnyx|bandwidth                            {w40-58}
@mail_key
mailjet_key                   mailjet|mj_api                                          {h32}
sparkpost_key                 sparkpost                                               {h40}
mailgun_keyed                 mailgun                                                 {h32}-{h8}-{h8}
mailtrap_token                mailtrap                                                {h32}
customerio_key                customerio|customer_io|convertkit|drip                  {h20-32}
elasticemail_key              elastic_email|elasticemail                              {u96}
ses_smtp_password             smtp|ses                                                {b44}
@database_key
confluent_keyed               confluent|kafka|ccloud                                  {b64}
confluent_key_id              confluent|ccloud                                        {u16}
mongodb_atlas_key             mongodb|atlas                                           {uuid}
snowflake_password            snowflake                                               {w12-64}
faunadb_key                   fauna                                                   fn{w38}
upstash_token                 upstash|kv_rest                                         {b40-90}
supabase_keyed                supabase                                                {w40-64}
firebase_token                firebase                                                {w35-60}
redis_password                redis|rediscloud|elasticache                            {w20-64}
influx_token                  influx                                                  {b80-90}
@password
rails_secret_key_base         secret_key_base                                         {h60-130}
laravel_app_key               app_key                                                 base64:{b44}
wordpress_salt                auth_key|secure_auth_key|logged_in_key|nonce_key|auth_salt   {s60-70}
nextauth_secret               nextauth|auth_secret|jwt_secret|session_secret          {b32-90}
machine_key                   validationkey|decryptionkey                             {H48-128}
"""
