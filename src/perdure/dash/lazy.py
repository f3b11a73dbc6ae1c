"""The dashboard before its first request: metrics and presence run from the start, pages are imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.dash.context import PageContext, StoreReader
from perdure.dash.presence import StatusListener
from perdure.http.server import Request
from perdure.serve.app import Options
from perdure.serve.session_table import SessionTable

if TYPE_CHECKING:
    from perdure.dash.app import Dashboard


class LazyDashboard:
    """Handles the requests for pages. Imports the pages with the first one."""

    def __init__(self, sessions: SessionTable, options: Options, address: str, stores: StoreReader) -> None:
        self._context = PageContext(sessions, is_wrapped=bool(options.wrap), stores=stores, address=address)
        self._status = StatusListener(self._context, address)
        self._token = options.token
        self._dashboard: Dashboard | None = None

    async def __call__(self, request: Request) -> None:
        if self._dashboard is None:
            from perdure.dash.app import Dashboard

            self._dashboard = Dashboard(self._context, self._token)
        await self._dashboard(request)
