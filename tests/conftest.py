pytest_plugins = ["tests.servers", "tests.apiserver"]
