"""A server with two tiny models, started once for all files here."""

import pytest
from helpers.optional import skip_without_package_of


@pytest.fixture(scope="session")
def server(model_dir, tmp_path_factory):
    skip_without_package_of("serve")
    from helpers.served import serving, turned_round

    directory = tmp_path_factory.mktemp("served")
    models = model_dir, turned_round(model_dir, directory)
    with serving(directory, *models, "--char-limit", 3000, "--batch-limit", 40) as found:
        yield found
