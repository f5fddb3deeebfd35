"""A server with two tiny models and a browser, each started once for all files here."""

import pytest
from helpers.browser import opened
from helpers.optional import skip_without_package_of
from helpers.person import at_the_page


@pytest.fixture(scope="session")
def server(model_dir, tmp_path_factory):
    skip_without_package_of("serve")
    from helpers.served import serving, turned_round

    directory = tmp_path_factory.mktemp("served")
    models = model_dir, turned_round(model_dir, directory)
    with serving(directory, *models, "--char-limit", 3000, "--batch-limit", 40, "--workers", 1) as found:
        yield found


@pytest.fixture(scope="session")
def tab(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def person(tab):
    with at_the_page(tab) as found:
        yield found
