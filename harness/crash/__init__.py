"""Writes under `kill -9`: sessions of calls whose processes die, and a judge who compares what was said with what is.

| file | what it does |
|---|---|
| `plan.py` | what a session is: whom it kills, at which points, with which settings |
| `calls.py`, `workload.py` | the calls of a session, and what each should leave behind |
| `place.py`, `wire.py`, `gates.py` | its folders, its pipes, and stopping a worker at a named point |
| `hosted.py`, `bare.py` | a host and its worker, or a worker alone, started and killed |
| `session.py`, `aim.py` | one session from its first call to the last recovery, and when its kills are due |
| `foreign.py`, `neighbour.py` | another program that edits; another worker on the same workspace |
| `lane.py` | one session in a folder of its own |
| `record.py`, `judge.py`, `chains.py` | what the journal and the disk hold, and whether that is right |
| `bugs.py`, `seeded/`, `hunt.py` | bugs that prove that the judge can find one |

`harness.crash.write_storm` runs many of them at a time.
"""
