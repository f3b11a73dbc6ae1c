"""What stands for the dashboard until somebody looks at it: its pages are loaded with the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.dash.announcing import Announced
from perdure.dash.desk import Desk, Looks
from perdure.serve.answering import Receive, Scope, Send
from perdure.serve.app import Options
from perdure.serve.session_table import SessionTable

if TYPE_CHECKING:
    from perdure.dash.app import Dashboard


class Front:
    """Counts from the start what the pages show, and tells other processes of this one."""

    def __init__(self, sessions: SessionTable, options: Options, address: str, looks: Looks) -> None:
        self._desk = Desk(sessions, is_wrapped=bool(options.wrap), looks=looks, address=address)
        self._announced = Announced(self._desk, address)
        self._token = options.token
        self._dashboard: Dashboard | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._dashboard is None:
            from perdure.dash.app import Dashboard

            self._dashboard = Dashboard(self._desk, self._token)
        await self._dashboard(scope, receive, send)
