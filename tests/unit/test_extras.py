"""The line that installs an extra, by where the package came from."""

import pytest

from gpuyard.extras import line_for


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        ("", "pip install 'gpuyard[ui]'"),
        (
            '{"url": "file:///home/ana/gpu%20yard", "dir_info": {"editable": true}}',
            "/v/bin/python -m pip install -e '/home/ana/gpu yard[ui]'",
        ),
        (
            '{"url": "file:///tmp/gpuyard-0.1.0-py3-none-any.whl", "archive_info": {}}',
            "/v/bin/python -m pip install '/tmp/gpuyard-0.1.0-py3-none-any.whl[ui]'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(origin: str, line: str) -> None:
    assert line == line_for("ui", origin, "/v/bin/python")
