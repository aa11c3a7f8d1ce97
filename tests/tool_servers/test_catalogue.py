"""Services by name."""

import pytest

from agar.errors import ConfigError
from agar.tool_servers.catalogue import find, known
from agar.tool_servers.service import Service


def test_every_known_name_is_a_service_with_settings_that_have_defaults_or_say_what_is_missing():
    for name in known():
        assert issubclass(find(name), Service)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "no tool server 'nothing'; there are:"),
        ("no_such_module:X", "cannot be imported"),
        ("agar.types:Nothing", "cannot be imported"),
        ("agar.types:Message", "no Service"),
        ("agar.tool_servers.service:Service", "no Service with `settings`"),
    ],
)
def test_a_name_that_stands_for_no_service_is_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        find(name)
