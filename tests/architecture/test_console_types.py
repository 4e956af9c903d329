"""The pages of the console are held to the description of the API: a field that it does not have is an error there.

svelte-check looks at all pages, with the types that `scripts/console_types.py` makes of the description.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import console  # noqa: E402
import console_types  # noqa: E402

PLANTED = """
<script lang="ts">
  import {{ get, call }} from "./api";
  async function look() {{
    const job = await get("/jobs/{{id}}", {{ id: 1 }});
    {line}
  }}
  void look();
</script>
"""
RIGHT = 'return "array" in job ? job.states : job.waited_ms;'
WRONG = {
    "misspelt": ("return job.sate;", "Property 'sate' does not exist"),
    "of arrays alone": ("return job.states;", "Property 'states' does not exist on type 'OneJob'"),
    "no endpoint": ('return get("/job");', "'\"/job\"' is not assignable"),
    "a body": ('return call("POST /config/diff", {}, { yml: "" });', "'yml' does not exist"),
}


def test_pages_use_what_the_api_has_and_nothing_else(tmp_path: Path) -> None:
    """All of them, and planted ones beside them of which each but one is wrong."""
    if not (console.SOURCE / "node_modules" / "svelte-check").exists():
        pytest.skip("the packages of the console are not installed: `make console` installs them")
    shutil.copytree(console.SOURCE, tmp_path / "c", ignore=shutil.ignore_patterns("node_modules", "wire.ts"))
    (tmp_path / "c" / "node_modules").symlink_to(console.SOURCE / "node_modules")
    types = tmp_path / "c" / "src" / "wire.ts"
    made = [sys.executable, str(ROOT / "scripts" / "console_types.py"), str(types)]
    subprocess.run(made, check=True)
    lines = {"Right": RIGHT, **{f"Wrong{at}": line for at, (line, _said) in enumerate(WRONG.values())}}
    for name, line in lines.items():
        (tmp_path / "c" / "src" / f"{name}.svelte").write_text(PLANTED.format(line=line))

    program, _npm = console.node()
    checker = str(console.SOURCE / "node_modules" / "svelte-check" / "bin" / "svelte-check")
    done = subprocess.run(
        [program, checker, "--fail-on-warnings", "--output", "machine-verbose"],
        cwd=tmp_path / "c",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"},
    )

    told = [json.loads(line.split(" ", 1)[1]) for line in done.stdout.splitlines() if '{"type"' in line]
    found = sorted([(each["filename"], each["message"]) for each in told])
    assert [f"src/Wrong{at}.svelte" for at in range(len(WRONG))] == [name for name, _said in found], found
    assert [said for _line, said in WRONG.values()] == [
        part for (_line, part), (_name, said) in zip(WRONG.values(), found, strict=True) if part in said
    ], found
    assert done.returncode


def test_types_are_made_of_what_the_description_says() -> None:
    fields = {
        "id": {"type": "integer"},
        "state": {"enum": ["UP", "DOWN"]},
        "parts": {"items": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "type": "array"},
        "at": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array"},
        "more": {"additionalProperties": {"$ref": "#/components/schemas/Part"}, "type": "object"},
        "any": {},
    }
    reply = {"properties": fields, "required": [*fields][:-1], "type": "object"}
    part = {"properties": {"ok": {"type": "boolean"}}, "type": "object"}
    answer = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Reply"}}}}
    document = {
        "paths": {"/api/v1/things/{id}": {"get": {"responses": {"200": answer}}}},
        "components": {"schemas": {"Reply": reply, "Part": part, "Unused": part}},
    }

    made = console_types.make_types(document)

    assert (
        "export type Part = {\n  ok?: boolean;\n};\n\n"
        'export type Reply = {\n  id: number;\n  state: "UP" | "DOWN";\n  parts: (number | null)[];\n'
        "  at: [number, string];\n  more: Record<string, Part>;\n  any?: any;\n};\n"
    ) in made
    assert '  "GET /things/{id}": Reply;\n' in made
    assert "Unused" not in made
    every = console_types.make_types(console_types.read_document())
    assert all(f'"GET /{name}":' in every for name in ("me", "queue", "jobs/{id}/why", "cost/statement"))
