"""Keys of model providers and of the services around them."""

from __future__ import annotations

from typing import Final

TOKENS: Final = """
@api_key
openai_legacy_key             sk-{a20}T3BlbkFJ{a20}
openai_project_key            sk-proj-{w40+}
openai_service_account_key    sk-svcacct-{w40+}
openai_admin_key              sk-admin-{w40+}
openai_user_key               sk-None-{w40+}
openai_key                    sk-{a32-64}
openai_session_key            sess-{a40}
anthropic_api                 sk-ant-api{d2}-{w40+}
anthropic_admin_key           sk-ant-admin{d2}-{w60+}
anthropic_oat                 sk-ant-oat{d2}-{w40+}
anthropic_refresh_token       sk-ant-ort{d2}-{w60+}
anthropic_session_key         sk-ant-sid{d2}-{w60+}
anthropic_key                 sk-ant-{w32+}
huggingface_token             hf_{a30-40}
huggingface_org_token         api_org_{a30-40}
replicate_token               r8_{a36-40}
groq_key                      gsk_{a48-60}
perplexity_key                pplx-{a40-64}
xai_key                       xai-{a60-100}
openrouter_key                sk-or-v1-{h64}
fireworks_key                 fw_{a22-40}
together_key                  tgp_v1_{w40+}
elevenlabs_key                sk_{h48}
langsmith_key                 lsv2_[pt|sk]_{h32}_{h10}
langchain_key                 ls__{h32}
langfuse_secret_key           sk-lf-{uuid}
pinecone_key                  pcsk_{a4-8}_{a40+}
cerebras_key                  csk-{l40+}
nvidia_key                    nvapi-{w60-70}
tavily_key                    tvly-{w24+}
firecrawl_key                 fc-{h32}
jina_key                      jina_{w50+}
voyage_key                    pa-{w40-50}
runpod_key                    rpa_{u40+}
modal_token_id                ak-{a22}
modal_token_secret            as-{a22}
wandb_key                     wandb_v1_{w40+}
bedrock_long_key              ABSK{b100+}
bedrock_short_key             bedrock-api-key-{b40+}
databricks_token              dapi{h32}
anyscale_key                  esecret_{a20+}
llamacloud_key                llx-{a40+}
helicone_key                  sk-helicone-{w30+}
sourcegraph_token             sgp_{H40}
sourcegraph_instance_token    sgp_{H16}_{H40}
sourcegraph_dotcom_token      sgd_{H64}
sourcegraph_license_key       slk_{H64}
cursor_key                    key_{h64}
~dify_key                     app-{a24}
vercel_ai_gateway_key         vck_{a40+}
humanloop_key                 hl_sk_{h48}
braintrust_key                sk-bt-{a40+}
e2b_key                       e2b_{h40}
brave_search_key              BSA{w24-32}
gemini_auth_key               AQ.{w45-60}
context7_key                  ctx7sk-{w30+}
smithery_key                  smry_{w30+}
mem0_key                      m0-{a40}
coze_token                    pat_{a64}
"""
