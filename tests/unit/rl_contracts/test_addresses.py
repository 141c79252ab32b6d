from __future__ import annotations

import pytest

from rl_contracts.addresses import host_of, is_internal, is_loopback, is_metadata, proxy_of


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://169.254.169.254.:80",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0xa9.254.43518/",
        "http://[fe80::1%25eth0]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200",
        "http://METADATA.google.internal",
    ],
)
def test_addresses_of_a_nodes_credentials(url: str) -> None:
    assert is_metadata(host_of(url))
    assert not is_internal(host_of(url))


@pytest.mark.parametrize(
    ("url", "loopback", "internal"),
    [
        ("http://localhost:1", True, True),
        ("http://127.9.9.9", True, True),
        ("http://[::1]:80/x", True, True),
        ("http://0x7f000001", True, True),
        ("http://tools", False, True),
        ("http://tools.team.svc:8080/x", False, True),
        ("http://tools.team.svc.cluster.local/", False, True),
        ("http://10.1.2.3", False, True),
        ("http://172.31.0.1", False, True),
        ("http://172.32.0.1", False, False),
        ("http://localhost.example", False, False),
        ("http://tools.team", False, False),
        ("http://a@b.example", False, False),
        ("http://metadata.example", False, False),
        ("http://[", False, False),
    ],
)
def test_where_a_host_leads(url: str, loopback: bool, internal: bool) -> None:
    host = host_of(url)
    assert (is_loopback(host), is_internal(host)) == (loopback, internal)
    assert not is_metadata(host)


@pytest.mark.parametrize(
    ("url", "environ", "proxy", "hosts"),
    [
        ("https://api.lab", {"HTTP_PROXY": "http://plain"}, None, None),
        ("http://api.lab", {"HTTP_PROXY": "http://plain"}, "http://plain", None),
        ("https://api.lab", {"https_proxy": "http://low", "no_proxy": "a"}, "http://low", "a"),
        (
            "https://api.lab",
            {"https_proxy": "http://low", "HTTPS_PROXY": "http://high", "NO_PROXY": "10.0.0.0/8"},
            "http://high",
            "10.0.0.0/8",
        ),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://high"}, None, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://high"}, None, None),
        ("https://api.lab", {"HTTPS_PROXY": ""}, None, None),
        ("https://api.lab", {"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128", None),
    ],
)
def test_a_proxy_is_that_of_the_scheme(
    url: str, environ: dict[str, str], proxy: str | None, hosts: str | None
) -> None:
    assert proxy_of(url, environ) == (proxy, hosts)
