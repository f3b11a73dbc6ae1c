"""A person's browser without the pictures: pages by address, forms by their fields."""

from __future__ import annotations

import http.client
import re
from html import unescape
from urllib.parse import urlencode

from perdure.testing.http_client import Answer, HttpClient, ServeProcess

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]
PAGES = (
    "/",
    "/events",
    "/events?kind=refusal",
    "/tools",
    "/mounts",
    "/mounts/server?name=perdure",
    "/timeline",
    "/timeline?client=an+agent&turn=1",
    "/timeline?path=a.txt&since=1h",
    "/timeline/change?id=2",
    "/journal",
    "/journal?path=a.txt&change=edit",
    "/journal/entry?path=a.txt&id=2",
    "/journal/undo?path=a.txt&id=2",
    "/journal/undo?id=2&id=1",
    "/journal/restore?path=a.txt&id=1",
    "/file?path=a.txt",
    "/file/compare?path=a.txt&from=1",
    "/state",
    "/state?lease=deploy",
    "/state/key?key=plan",
    "/reservations",
    "/handoffs",
    "/drafts",
    "/sessions",
    "/registry",
)


class Visitor:
    """Keeps its cookie, and says where its forms come from as a browser does."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""
        self.origin = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        found = {"Cookie": self.cookie} if self.cookie else {}
        try:
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in {**found, **headers, "Content-Length": str(len(body))}.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders(body.encode())
            answer = connection.getresponse()
            heads = {key.lower(): value for key, value in answer.getheaders()}
            if "set-cookie" in heads:
                self.cookie = heads["set-cookie"].split(";")[0]
            return Answer(answer.status, heads, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def text(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status == 200, answer
        return answer.body.decode()

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        kind = "application/x-www-form-urlencoded"
        return self.ask(
            "POST", path, urlencode(fields), **{"Content-Type": kind, "Origin": self.origin, **headers}
        )

    def post_form(self, page: str, to: str) -> Answer:
        """Press the button of the first form on a page that posts to an address."""
        forms = re.findall(r"<form[^>]*>.*?</form>", page, re.S)
        found_form = next(one for one in forms if 'method="post"' in one and f'action="{to}"' in one)
        pairs = re.findall(r'name="([^"]*)" value="([^"]*)"', found_form)
        kind = "application/x-www-form-urlencoded"
        body = urlencode([(unescape(name), unescape(value)) for name, value in pairs])
        return self.ask("POST", to, body, **{"Content-Type": kind, "Origin": self.origin})

    def form(self, page: str, to: str) -> dict[str, str]:
        """The hidden fields of the first form on a page that posts to an address."""
        forms = re.findall(r"<form[^>]*>.*?</form>", page, re.S)
        found_form = next(one for one in forms if 'method="post"' in one and f'action="{to}"' in one)
        return {
            unescape(name): unescape(value)
            for name, value in re.findall(r'name="([^"]*)" value="([^"]*)"', found_form)
        }


def agent(served: ServeProcess, name: str = "an agent", **headers: str) -> HttpClient:
    client = served.client(**headers)
    client.name = name
    client.initialize()
    return client


def furnish(client: HttpClient) -> None:
    """Something to see on every page."""
    for tool, arguments in (
        ("safe_write", {"path": "a.txt", "content": "one\n"}),
        ("edit", {"path": "a.txt", "edits": [{"old": "one", "new": "two"}]}),
        ("set_state", {"key": "plan", "value": '{"step": 1}'}),
        ("lease", {"action": "acquire", "name": "deploy", "owner": "somebody"}),
        ("scratch_put", {"content": "hidden scratch", "label": "notes"}),
        ("chunk_write", {"session": "big", "index": 1, "content": "hidden chunk"}),
        ("checkpoint", {"name": "before", "data": {"x": "hidden checkpoint"}}),
        ("handoff_write", {"envelope": handoff("T-1"), "body": "More to say."}),
    ):
        result = client.call(tool, arguments)
        assert not result.get("isError"), result
    refused = client.call("safe_write", {"path": "refused.env", "content": f"key = {SECRET}\n"})
    assert refused.get("isError"), refused


def handoff(word: str) -> dict[str, object]:
    return {
        "task_id": word,
        "status": "partial",
        "agent": word,
        "summary": word,
        "next_steps": [word],
        "last_good_state": [],
        "open_questions": [word],
        "steps": [{"id": word, "description": word, "depends_on": [], "status": "pending"}],
    }
