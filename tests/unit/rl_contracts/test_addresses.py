from __future__ import annotations

import base64

import pytest

from rl_contracts.addresses import (
    host_of,
    is_internal,
    is_loopback,
    is_metadata,
    proxy_headers,
    proxy_of,
)


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
    ("url", "environ", "proxy"),
    [
        ("https://api.lab", {"HTTP_PROXY": "http://plain"}, None),
        ("http://api.lab", {"HTTP_PROXY": "http://plain"}, "http://plain"),
        ("https://api.lab", {"https_proxy": "http://low", "no_proxy": "a"}, "http://low"),
        (
            "https://api.lab",
            {"https_proxy": "http://low", "HTTPS_PROXY": "http://high", "NO_PROXY": "10.0.0.0/8"},
            "http://high",
        ),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://high"}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://high"}, None),
        ("https://api.lab", {"HTTPS_PROXY": ""}, None),
        ("https://api.lab", {"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
    ],
)
def test_a_proxy_is_that_of_the_scheme(
    url: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_of(url, environ) == proxy


@pytest.mark.parametrize(
    ("without", "reached", "not_reached"),
    [
        ("*", ["api.lab", "10.0.0.1"], []),
        ("foo, *", ["api.lab"], []),
        ("", [], ["api.lab"]),
        (",", [], ["api.lab"]),
        ("lab", ["lab", "api.lab", "API.Lab"], ["collab", "lab.example"]),
        (".lab", ["api.lab", "a.api.lab"], ["lab", "collab"]),
        ("*.LAB", ["api.lab", "a.api.lab"], ["lab", "collab"]),
        ("10.0.0.0/8", ["10.1.2.3", "10.1.2.3:6443"], ["11.0.0.1", "api.lab", "[fd00::1]"]),
        ("fd00::/8", ["[fd00::1]", "[fd12::1]:6443"], ["[fe80::1]", "10.0.0.1"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.2"]),
        ("fd00::1", ["[fd00::1]"], ["[fd00::2]"]),
        ("api.lab:6443", ["api.lab:6443"], ["api.lab", "api.lab:1"]),
        (".lab:443", ["api.lab", "api.lab:443"], ["api.lab:6443"]),
        ("[fd00::1]:443", ["[fd00::1]"], ["[fd00::1]:6443"]),
    ],
)
def test_no_proxy_names_who_is_reached_without_one(
    without: str, reached: list[str], not_reached: list[str]
) -> None:
    environ = {"HTTPS_PROXY": "http://proxy", "NO_PROXY": without}
    assert [host for host in reached if proxy_of(f"https://{host}", environ)] == []
    assert [host for host in not_reached if not proxy_of(f"https://{host}", environ)] == []


@pytest.mark.parametrize(
    ("proxy", "login"),
    [
        ("http://me:p%40ss@proxy:3128", "me:p@ss"),
        ("http://me@proxy:3128", "me:"),
        ("http://é:ü@proxy", "é:ü"),
    ],
)
def test_a_user_of_a_proxy_logs_in(proxy: str, login: str) -> None:
    written = base64.b64encode(login.encode()).decode()
    assert proxy_headers(proxy) == {"proxy-authorization": f"Basic {written}"}
    assert proxy_headers("http://proxy:3128") == {}
