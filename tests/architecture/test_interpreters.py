"""Each Python that the yard starts beside itself looks for no module in the folder where it is started."""

import ast

from architecture.test_shape import PACKAGE, modules

OF_USERS = {"engines/node/notebook.py"}
"""What a user's job runs as that user, where it was told to, with any Python that there is."""


def test_every_command_line_of_our_python_is_isolated_from_its_folder() -> None:
    bare, isolated = [], 0
    for path in modules():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "sys.executable" in text else ():
            if not isinstance(node, ast.List | ast.Tuple | ast.Call):
                continue
            words = node.args if isinstance(node, ast.Call) else node.elts
            texts = [ast.unparse(word) for word in words]
            if "sys.executable" not in texts:
                continue
            after = texts[texts.index("sys.executable") + 1 :]
            if isinstance(node, ast.Call) and "'-c'" not in after and "'-m'" not in after:
                continue
            name = str(path.relative_to(PACKAGE))
            if after[:1] and after[0] in ("'-P'", "'-I'"):
                isolated += 1
            elif after and after[0].startswith(("'-", "*")) and name not in OF_USERS:
                bare.append(f"{name}:{node.lineno} {ast.unparse(node)[:80]}")
    assert [] == bare
    assert isolated >= 4
