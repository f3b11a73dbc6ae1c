"""Times for people: in the zone of this machine, which every page names; relative where they are recent."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from perdure.dash.html import Markup, element


def moment(stamp: str | float) -> datetime | None:
    """An ISO 8601 text or seconds since 1970, in local time; None for what is neither."""
    try:
        found = datetime.fromisoformat(stamp) if isinstance(stamp, str) else datetime.fromtimestamp(stamp)
        return found.astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def when(stamp: str | float | None, *, has_day: bool = True) -> Markup:
    """The clock time, with its day where that is not today. The script of the page turns a recent one into `5 min ago`."""
    found = moment(stamp) if stamp else None
    if found is None:
        return Markup("")
    today = date.today()
    if not has_day or found.date() == today:
        text = f"{found:%H:%M:%S}"
    else:
        text = f"{found.day} {found:%b}{'' if found.year == today.year else f' {found.year}'}, {found:%H:%M}"
    whole = f"{day_name(found.date())}, {found:%H:%M:%S} {zone(found)}"
    return element("time", text, datetime=found.isoformat(timespec="seconds"), title=whole)


def day_name(day: date) -> str:
    match (date.today() - day).days:
        case 0:
            return "Today"
        case 1:
            return "Yesterday"
        case _:
            return f"{day:%A}, {day.day} {day:%B %Y}"


def zone(at: datetime | None = None) -> str:
    """`CET (UTC+01:00)`, or just `UTC`."""
    found = at or datetime.now().astimezone()
    offset = found.utcoffset() or timedelta()
    name = found.tzname() or ""
    if not offset:
        return "UTC"
    text = f"UTC{found:%z}"
    text = f"{text[:-2]}:{text[-2:]}"
    return text if name.startswith(("+", "-")) else f"{name} ({text})"


def ago(seconds: float) -> str:
    if seconds < 60:
        return "less than a minute ago"
    return f"{lasting(seconds)} ago"


def lasting(seconds: float) -> str:
    """A duration in its largest unit, so that it does not change with every look."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
