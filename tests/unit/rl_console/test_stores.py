import pytest

from rl_console.stores import ServiceAddress, readdressed, service_of


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("http://minio.rl-system.svc:9000", ServiceAddress("minio", "rl-system", 9000)),
        ("http://minio.a.svc.cluster.local:9000", ServiceAddress("minio", "a", 9000)),
        ("http://minio:9000", ServiceAddress("minio", "lab", 9000)),
        ("mongodb://u:p@store.a.svc:27017/?x=1", ServiceAddress("store", "a", 27017)),
        ("https://s3.eu-west-1.amazonaws.com", None),
        ("https://s3.example.com:9000", None),
    ],
)
def test_urls_of_services_are_recognized(url: str, service: ServiceAddress | None) -> None:
    assert service_of(url, default_namespace="lab") == service


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://minio.a.svc:9000", "http://127.0.0.1:31"),
        ("mongodb://u:p%40@store.a.svc:27017/?x=1", "mongodb://u:p%40@127.0.0.1:31/?x=1"),
    ],
)
def test_only_host_and_port_change(url: str, expected: str) -> None:
    assert readdressed(url, port=31) == expected
