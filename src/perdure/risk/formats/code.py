"""Tokens of code hosts, package registries and build systems."""

from __future__ import annotations

from typing import Final

TOKENS: Final = """
@github_pat
ghp                           ghp_{a36-40}
gho                           gho_{a36-40}
ghu                           ghu_{a36-40}
ghs                           ghs_{a36-40}
ghr                           ghr_{a36-76}
github_pat_fine_grained       github_pat_{a20-24}_{a50-62}
github_app_jwt_token          ghs_{d1-12}_{s80+}
@vcs_token
gitlab_personal_token         glpat-{w20+}
gitlab_routable_token         gl[pat|rt|dt|cbt|ptt]-{w20-300}.{l2}.{l9-12}
gitlab_deploy_token           gldt-{w20+}
gitlab_runner_token           glrt-{w20+}
gitlab_runner_routable_token  glrtr-{w20+}
gitlab_job_token              glcbt-{w20+}
gitlab_trigger_token          glptt-{w20+}
gitlab_feed_token             glft-{w20+}
gitlab_mail_token             glimt-{w20+}
gitlab_agent_token            glagent-{w40+}
gitlab_oauth_secret           gloas-{w40+}
gitlab_scim_token             glsoat-{w20+}
gitlab_flag_token             glffct-{w20+}
gitlab_workspace_token        glwt-{w20+}
gitlab_registration_token     GR1348941{w20}
gitlab_session                _gitlab_session={l32}
bitbucket_app_password        ATBB{a28-36}
bitbucket_access_token        ATCTT3{w40+}
atlassian_api_token           ATATT3{w40+}
atlassian_oauth_secret        ATOA{w40+}
trello_token                  ATTA{h60-80}
@package_token
npm_token                     npm_{a36}
pypi_token                    pypi-AgEI{w60+}
pypi_test_token               pypi-AgEN{w60+}
rubygems_key                  rubygems_{h48}
nuget_key                     oy2{l43}
crates_token                  cio{a32}
dockerhub_token               dckr_pat_{w24-40}
dockerhub_org_token           dckr_oat_{w24-40}
clojars_token                 CLOJARS_{h60}
packagist_token               packagist_[ack|acs|uck|ucs|oak|oas]_{h40+}
jfrog_api_key                 AKCp{a60-75}
jfrog_reference_token         cmVmdGtuOj{a50-60}
jetbrains_token               perm:{b8-60}.{b8-60}.{a20-40}
jetbrains_marketplace_token   perm-{b8-60}.{b8-60}.{a20-40}
@ci_token
buildkite_token               bkua_{h40}
buildkite_agent_token         bkct_{w20+}
circleci_token                CCIP[AT|RJ]_{w20-24}_{h40}
harness_token                 [pat|sat].{w22}.{a24}.{a20}
octopus_key                   API-{u25-32}
teamcity_token                eyJ0eXAiOiAiVENWMiJ9.{w30-40}.{w40-50}
sonar_token                   sq[u|p|a]_{h40}
snyk_token                    snyk_{a3}.{uuid}
prefect_key                   pn[u|b]_{a36}
dbt_token                     dbt[c|u|s]_{w30+}
deno_token                    dd[p|o|w]_{a36}
valtown_token                 vtwn_{a26+}
stackhawk_key                 hawk.{w20}.{w20}
chromatic_token               chpt_{h12-15}
percy_token                   web_{h64}
gitguardian_token             ggt-v-{w60}
hex_key                       hexpm_{h32}
"""
