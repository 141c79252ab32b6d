"""Sets up and removes the node's network: kernel settings and packet filter chains."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rl_local import progress
from rl_local.errors import LocalError
from rl_local.layout import BRIDGE, NETWORK, NODE_RANGE, POD_RANGE

OWN_CHAINS = ("KUBE-", "RL-OPERATOR-")
TABLES = ("filter", "nat", "mangle")
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
}
# Changed by kubelet, kube-proxy and the bridge plugin; `down` restores the old values.
TOUCHED = (
    *SYSCTLS,
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/conf/all/route_localnet",
)
PROC_SYS = Path("/proc/sys")
RESULTS = Path("/var/lib/cni/results")


def node_address() -> str:
    """The IPv4 address of this machine that pods can reach; never loopback.

    Raises:
        LocalError: it has no such address.
    """
    routes = json.loads(progress.output(["ip", "-json", "-4", "route", "show", "default"]))
    interfaces = [route["dev"] for route in routes]
    for link in json.loads(
        progress.output(["ip", "-json", "-4", "address", "show", "scope", "global"])
    ):
        if link["ifname"] != BRIDGE and (not interfaces or link["ifname"] in interfaces):
            return str(link["addr_info"][0]["local"])
    raise LocalError("this machine has only loopback IPv4 addresses; configure another one")


def prepare(saved: Path) -> None:
    """Save the kernel settings to ``saved``, change them, and add our packet filter chains."""
    if not (PROC_SYS / "net/bridge").exists():
        progress.output(["modprobe", "br_netfilter"])
    if not saved.exists():
        before = {name: (PROC_SYS / name).read_text().strip() for name in TOUCHED}
        saved.write_text(json.dumps(before))
    for name, value in SYSCTLS.items():
        (PROC_SYS / name).write_text(value)
    _ensure_chain(
        "nat",
        "RL-OPERATOR-MASQ",
        "POSTROUTING",
        [f"-s {NODE_RANGE} ! -d {POD_RANGE} -j MASQUERADE"],
    )
    _ensure_chain(
        "filter",
        "RL-OPERATOR-FORWARD",
        "FORWARD",
        [f"-i {BRIDGE} -j ACCEPT", f"-o {BRIDGE} -j ACCEPT"],
    )


def _ensure_chain(table: str, chain: str, hook: str, rules: list[str]) -> None:
    existing = progress.output(["iptables", "-w", "-t", table, "-S"])
    lines = [f"*{table}", f":{chain} - [0:0]", *(f"-A {chain} {rule}" for rule in rules)]
    if f"-A {hook} -j {chain}" not in existing.splitlines():
        lines.append(f"-I {hook} -j {chain}")
    # A restore first empties the chain that it names, so repeating it adds nothing.
    _restore("iptables", [*lines, "COMMIT"])


def removal(saved: str, table: str) -> list[str]:
    """The ``iptables-restore --noflush`` script that removes our chains and all jumps to them.

    Args:
        saved: what ``iptables-save -t TABLE`` printed.
        table: its name.

    Returns:
        The lines; empty when there are no chains of ours.
    """
    chains = [
        match[1]
        for match in re.finditer(r"^:(\S+) ", saved, re.MULTILINE)
        if match[1].startswith(OWN_CHAINS)
    ]
    rules = [line for line in saved.splitlines() if line.startswith("-A ")]
    jumps = [
        line
        for line in rules
        if line.split()[1] not in chains and _target(line).startswith(OWN_CHAINS)
    ]
    if not chains:
        return []
    lines = [f"*{table}", *(f":{chain} - [0:0]" for chain in chains)]
    lines += ["-D" + line.removeprefix("-A") for line in jumps]
    return [*lines, *(f"-X {chain}" for chain in chains), "COMMIT"]


def _target(rule: str) -> str:
    words = rule.split()
    return words[words.index("-j") + 1] if "-j" in words else ""


def _restore(program: str, lines: list[str]) -> None:
    progress.output([f"{program}-restore", "-w", "5", "--noflush"], stdin="\n".join(lines) + "\n")


def remove(saved: Path) -> None:
    """Remove the bridge, our chains and address records; restore the kernel settings."""
    for program in ("iptables", "ip6tables"):
        for table in TABLES:
            lines = removal(progress.output([f"{program}-save", "-t", table]), table)
            if lines:
                _restore(program, lines)
    if Path("/sys/class/net", BRIDGE).exists():
        progress.output(["ip", "link", "delete", BRIDGE])
    for result in RESULTS.glob(f"{NETWORK}-*-eth0"):
        container = result.name.removeprefix(f"{NETWORK}-").removesuffix("-eth0")
        (RESULTS / f"cni-loopback-{container}-lo").unlink(missing_ok=True)
        result.unlink()
    if saved.exists():
        for name, value in json.loads(saved.read_text()).items():
            (PROC_SYS / name).write_text(value)
