"""Values that vendors print in their own documentation. They look real and open nothing."""

from __future__ import annotations

from typing import Final

KNOWN: Final = frozenset(
    (
        b"AKIAIOSFODNN7EXAMPLE",
        b"AKIAI44QH8DHBEXAMPLE",
        b"ASIAIOSFODNN7EXAMPLE",
        b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        b"je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY",
        b"sk_test_4eC39HqLyjWDarjtT1zdp7dc",
        b"sk_test_BQokikJOvBiI2HlWgH4olfQ2",
        b"sk_test_tR3PYbcVNZZ796tH88S4VQ2u",
        b"rk_test_4eC39HqLyjWDarjtT1zdp7dc",
        b"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",
        b"key-3ax6xnjp29jd6fds4gc373sgvjxteol0",
        b"AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
        b"AIzaSyClzfrOzB818x55FASHvX4JuGQciR9lv7q",
        b"110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
        b"123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11",
        b"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
        b"ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        b"gho_16C7e42F292c6912E7710c838347Ae178B4a",
        b"ghu_16C7e42F292c6912E7710c838347Ae178B4a",
        b"ghr_1B4a2e77838347a7E420ce178F2E7c6912E169246c34E1ccbF66C46812d16D5B1A9Dc86A1498",
        b"xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcBrzbqgy",
        b"xoxp-1234-5678-91011-abcdef",
        b"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
        b"C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==",
        b"ya29.a0AfH6SMBexample",
        b"shpat_c0ffee00c0ffee00c0ffee00c0ffee00",
    )
)
# The token that jwt.io opens with, and the claim by which all its relatives are known.
EXAMPLE_CLAIMS: Final = (b'"John Doe"', b'"1234567890"', b'"joe"', b'"Jane Doe"')
