"""Two hundred strings that try to become more than text: markup, terminal sequences, turned direction, great length.

A script that one of them manages to run sets `window.pwned` or opens a dialog.
"""

from typing import Any

_RUN = "window.pwned=1"
_MARKUP = [
    f"<script>{_RUN}</script>",
    f"<img src=x onerror={_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f'"><script>{_RUN}</script>',
    f"'><img src=x onerror={_RUN}>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'>",
    f"<iframe src=javascript:{_RUN}>",
    f"<object data=javascript:{_RUN}>",
    f"<embed src=javascript:{_RUN}>",
    f"<a href=javascript:{_RUN}>press</a>",
    f"<form action=javascript:{_RUN}><button>press</button></form>",
    "<base href=http://evil.example/>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    f"<details open ontoggle={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<audio src=x onerror={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    f"<select autofocus onfocus={_RUN}>",
    f"<textarea autofocus onfocus={_RUN}>",
    f"<marquee onstart={_RUN}>",
    f"<body onload={_RUN}>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={_RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'>",
    f"<template><img src=x onerror={_RUN}></template>",
    f"<xmp><img src=x onerror={_RUN}></xmp>",
    f"</textarea><script>{_RUN}</script>",
    f"</title><script>{_RUN}</script>",
    f"</style><script>{_RUN}</script>",
    f"<!--><script>{_RUN}</script>-->",
    f"<![CDATA[<script>{_RUN}</script>]]>",
    "<style>*{display:none}</style>",
    "<style>@import 'http://evil.example/x.css'</style>",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    f"&#60;script&#62;{_RUN}&#60;/script&#62;",
    f"\\u003cscript\\u003e{_RUN}\\u003c/script\\u003e",
    f"javascript:{_RUN}",
    f"data:text/html,<script>{_RUN}</script>",
    f"vbscript:{_RUN}",
    "//evil.example/x",
    "http://evil.example/x?<script>",
    "../../../etc/passwd",
    '#/submit?from=1&with={"gpus":9}',
    "?q=<b>",
    f"{{{{constructor.constructor('{_RUN}')()}}}}",
    f"${{{_RUN}}}",
    f"{{@html '<img src=x onerror={_RUN}>'}}",
    f"'-{_RUN}-'",
    f"';{_RUN}//",
    f'");{_RUN}//',
    f"`${{{_RUN}}}`",
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "null",
    "undefined",
    "NaN",
    "[object Object]",
    "true",
    "-1",
    "1e309",
    "0x41",
    "' OR 1=1 --",
    "%00%0d%0aSet-Cookie:x=y",
    "%3Cscript%3E",
    "%",
    "%E0%A4%A",
    "expression(alert(1))",
    "url(http://evil.example/x)",
    "red;background:url(http://evil.example/x)",
    "width:99999px",
    "}*{color:red",
]
_TERMINAL = [
    "\x1b[31mred\x1b[0m",
    "\x1b[1;4;7;38;2;255;0;0mmuch\x1b[0m",
    "\x1b[2J\x1b[H",
    "\x1b[9999;9999H",
    "\x1b[999999999999C",
    "\x1b[?1049h",
    "\x1b[6n",
    "\x1b[c",
    "\x1b[20t\x1b[21t",
    "\x1b]0;title\x07",
    "\x1b]2;title\x1b\\",
    "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\x1b]8;;javascript:window.pwned=1\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]8;id=1;data:text/html,<script>\x07link\x1b]8;;\x07",
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x1b]1337;File=name=eA==;inline=1:AAAA\x07",
    "\x1b]4;1;rgb:ff/00/00\x07",
    "\x1bP+q544e\x1b\\",
    "\x1bPq#0;2;0;0;0#0!99999~\x1b\\",
    "\x1b_Ga=T,f=100;AAAA\x1b\\",
    "\x1b^private\x1b\\",
    "\x1b[31",
    "\x1b",
    "\x9b31mC1\x9b0m",
    "\x9d0;title\x9c",
    "\x07\x07\x07",
    "a\x08b\x08c",
    "over\rwritten",
    "\x0e\x0f",
    "\x00nothing\x00",
    "tab\ttab",
    "one\ntwo\nthree",
    "\v\f",
    "\x7f",
    "\x85next",
    "\u2028line\u2029paragraph",
]
_DIRECTION = [
    "\u202ertl gnitirw",
    "\u202dltr",
    "\u202a\u202b\u202c",
    "\u2066isolate\u2069",
    "\u2067isolate",
    "\u2068first",
    "\u200fmark",
    "\u200emark",
    "user\u202egpj.exe",
    "a\u200bb\u200cc\u200dd",
    "\ufeffbom",
    "\u2060joined",
    "\u00adsoft",
    "\u061cletter",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u0645\u0631\u062d\u0628\u0627 123 abc",
    "\u202e" * 50,
    "cancel\u202e)lecnac(",
]
_SHAPES = [
    "Z\u0351\u036b\u0343a\u0353\u0345l\u0321g\u0321o\u0345" * 8,
    "e" + "\u0301" * 200,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f1e9\U0001f1ea\U0001f3f4",
    "\ufdfd\ufdfd\ufdfd",
    "\u0bf5\U00012031",
    "\uff1cscript\uff1e",
    "\u3000wide\u3000",
    "\u0430dmin",
    "r\u043eot",
    "\ufffd\ufffe\uffff",
    "\U000e0001\U000e0041tags",
    "\U0010ffff",
    " ",
    "",
    "   leading and trailing   ",
    ".",
    "..",
    "/",
    "\\",
    "~.",
    "\r~.",
    '"',
    "'",
    "`",
    "&",
    "&amp;",
    "<",
    ">",
    "</",
    "<!--",
    "-->",
    "]]>",
]
_HUGE = [
    "x" * 128,
    "x" * 10_000,
    "wide " * 5_000,
    "W" * 100_000,
    "/" * 5_000,
    "-" * 5_000,
    "\n" * 2_000,
    "\t" * 2_000,
    " " * 10_000,
    "<b>" * 3_000,
    "&" * 5_000,
    "\U0001f680" * 2_000,
    "\u202e" * 2_000,
    "\u0301" * 2_000,
    "a\u00a0" * 2_000,
    "https://evil.example/" + "p" * 5_000,
    "0" * 5_000,
    "\x1b[31m" * 2_000,
    "[" * 5_000,
    "\ufdfd" * 300,
]
STRINGS = [*_MARKUP, *_TERMINAL, *_DIRECTION, *_SHAPES, *_HUGE]
_MORE = 200 - len(STRINGS)
STRINGS += [
    f"{_MARKUP[at]}{_DIRECTION[at % len(_DIRECTION)]}{_TERMINAL[at % len(_TERMINAL)]}" for at in range(_MORE)
]

KEPT = frozenset({"columns", "allowed", "rights", "state", "request", "code", "kind"})
"""Fields that the console reads and does not show."""
ROWS = 14


class Poison:
    """Puts the strings, one after the other, wherever an answer of the yard has a text."""

    def __init__(self) -> None:
        self.at = 0
        self.fields: set[str] = set()

    def text(self) -> str:
        """The next one."""
        self.at += 1
        return STRINGS[self.at % len(STRINGS)]

    def put(self, value: Any, field: str = "") -> Any:
        """The answer with other texts, and with more rows of each list so that there is room for all of them."""
        if isinstance(value, str):
            self.fields.add(field)
            return self.text()
        if isinstance(value, dict):
            if "columns" in value and "rows" in value:
                return {**value, "rows": self._rows(value["columns"], value["rows"])}
            return {name: each if name in KEPT else self.put(each, name) for name, each in value.items()}
        if isinstance(value, list):
            rows = (
                value if len(value) >= ROWS or not value else [value[at % len(value)] for at in range(ROWS)]
            )
            return [self.put(each, field) for each in rows]
        return value

    def _rows(self, columns: list[str], rows: list[list[Any]]) -> list[list[Any]]:
        number = columns.index("id")
        many = [rows[at % len(rows)] for at in range(ROWS if rows else 0)]
        return [
            [
                1000 + at
                if place == number
                else each
                if columns[place] in KEPT
                else self.put(each, columns[place])
                for place, each in enumerate(row)
            ]
            for at, row in enumerate(many)
        ]
