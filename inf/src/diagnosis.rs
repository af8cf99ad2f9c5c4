// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps by which `Test-Viordma.ps1` decides whether SMB Direct can use an adapter: one table, from which the script's data file and
//! a list in a page for administrators are generated.

/// A step. The first one whose fact is known and does not hold is the reason.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The name of the fact in the script.
    pub fact: &'static str,
    pub test: Test,
    pub reason: &'static str,
    pub remedy: &'static str,
}

/// A comparison of a fact with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The text, without regard to upper and lower case.
    Equals(&'static str),
    AtLeast(u64),
}

impl Test {
    /// Returns whether the value of a fact passes.
    #[must_use]
    pub fn holds(self, value: &str) -> bool {
        match self {
            Self::Equals(text) => value.eq_ignore_ascii_case(text),
            Self::AtLeast(least) => value.parse().is_ok_and(|value: u64| value >= least),
        }
    }
}

const fn step(fact: &'static str, test: Test, reason: &'static str, remedy: &'static str) -> Step {
    Step { fact, test, reason, remedy }
}

use Test::{AtLeast, Equals};

/// The steps, in the order in which they are judged.
pub const STEPS: &[Step] = &[
    step(
        "os.build",
        AtLeast(20348),
        "Windows is older than Server 2022.",
        "Install Windows Server 2022 or later.",
    ),
    step(
        "os.smbdirect",
        Equals("True"),
        "This edition of Windows has no SMB Direct.",
        "Use Windows Server, Windows Enterprise or Windows Pro for Workstations.",
    ),
    step(
        "adapter.present",
        Equals("True"),
        "There is no adapter of this name.",
        "Take a name from Get-NetAdapter.",
    ),
    step(
        "device.virtio",
        Equals("True"),
        "The adapter is no virtio-net device.",
        "Give the virtual machine a network device of the model virtio.",
    ),
    step(
        "event.viordma.11",
        Equals("0"),
        "The device is a legacy virtio device, which the driver refuses.",
        "Give the machine a modern device: q35 with a PCIe port, or QEMU's disable-legacy=on,disable-modern=off.",
    ),
    step(
        "event.viordma.31",
        Equals("0"),
        "The system remaps DMA, but the device does not take part.",
        "Set iommu_platform=on for the device, or remove the virtual IOMMU.",
    ),
    step(
        "event.viordma.26",
        Equals("0"),
        "The device failed, and the adapter was removed.",
        "Look at the events of viordma in the system log, then disable and enable the adapter.",
    ),
    step(
        "device.driver",
        Equals("viordma.sys"),
        "Another driver runs the adapter.",
        "Choose viordma for this device in Device Manager: Update driver, Browse my computer, Let me pick.",
    ),
    step(
        "device.problem",
        Equals("0"),
        "Plug and Play reports a problem of the device. 52: the signature is not trusted.",
        "For 52: test mode and the certificate, as README.md says. Otherwise the events of viordma in the system log.",
    ),
    step(
        "adapter.status",
        Equals("Up"),
        "The link is down, or the adapter is disabled.",
        "Enable the adapter, and look at the bridge or the cable of the host.",
    ),
    step(
        "adapter.addresses",
        AtLeast(1),
        "The adapter has no usable IP address.",
        "Configure one, or look for the DHCP server.",
    ),
    step(
        "rdma.global",
        Equals("Enabled"),
        "RDMA is disabled for the whole system.",
        "Set-NetOffloadGlobalSetting -NetworkDirect Enabled",
    ),
    step(
        "rdma.adapter",
        Equals("True"),
        "RDMA is disabled on the adapter.",
        "Enable-NetAdapterRdma -Name NAME",
    ),
    step(
        "event.viordma.40",
        Equals("0"),
        "RDMA uses smaller packets than configured, because the adapter's frames are too short.",
        "Raise `*JumboPacket` and the MTU of the device (4206 for 4096 bytes), or lower `*NetworkDirectRoCEFrameSize`.",
    ),
    step(
        "event.viordma.43",
        Equals("0"),
        "Memory was too short for all queue pairs.",
        "Give the system more memory, or lower QueuePairs.",
    ),
    step(
        "binding.client",
        Equals("True"),
        "The client of SMB is not bound to the adapter.",
        "Enable-NetAdapterBinding -Name NAME -ComponentID ms_msclient",
    ),
    step(
        "binding.server",
        Equals("True"),
        "The server of SMB is not bound to the adapter.",
        "Enable-NetAdapterBinding -Name NAME -ComponentID ms_server",
    ),
    step(
        "smb.client.multichannel",
        Equals("True"),
        "SMB Multichannel, which finds RDMA, is off in the client.",
        "Set-SmbClientConfiguration -EnableMultiChannel $true",
    ),
    step(
        "smb.server.multichannel",
        Equals("True"),
        "SMB Multichannel, which finds RDMA, is off in the server.",
        "Set-SmbServerConfiguration -EnableMultiChannel $true",
    ),
    step(
        "event.smbdirect.1",
        Equals("0"),
        "SMB Direct finds too few scatter/gather elements for an initiator.",
        "Report the numbers in the event: the driver's limits have to be raised.",
    ),
    step(
        "event.smbdirect.2",
        Equals("0"),
        "SMB Direct finds too few scatter/gather elements for receives.",
        "Report the numbers in the event: the driver's limits have to be raised.",
    ),
    step(
        "event.smbdirect.3",
        Equals("0"),
        "SMB Direct finds too few scatter/gather elements for reads.",
        "Report the numbers in the event: the driver's limits have to be raised.",
    ),
    step(
        "event.smbdirect.10",
        Equals("0"),
        "The adapter's number of pages for a fast registration does not suit SMB Direct.",
        "Report the event.",
    ),
    step(
        "event.smbdirect.300",
        Equals("0"),
        "SMB Direct no longer supports the adapter's version of NDKPI.",
        "Look for a newer version of viordma.",
    ),
    step(
        "event.smbdirect.301",
        Equals("0"),
        "A limit of the adapter is below the minimum of SMB Direct.",
        "Report the event.",
    ),
    step(
        "event.smbdirect.302",
        Equals("0"),
        "SMB Direct could not allocate an object of the adapter.",
        "Give the system more memory, or close connections.",
    ),
    step(
        "event.smbdirect.304",
        Equals("0"),
        "The creation of an object took the adapter too long.",
        "Look at the load of the system and of its host.",
    ),
    step("event.smbdirect.303", Equals("0"), "A completion queue failed.", "Report the event."),
    step(
        "smb.client.rdma",
        Equals("True"),
        "The client of SMB does not list the adapter as RDMA capable.",
        "Disable and enable the adapter, then Get-SmbClientNetworkInterface.",
    ),
    step(
        "smb.server.rdma",
        Equals("True"),
        "The server of SMB does not list the adapter as RDMA capable.",
        "Disable and enable the adapter, then Get-SmbServerNetworkInterface.",
    ),
    step(
        "firewall.smb",
        Equals("True"),
        "Windows' firewall blocks SMB.",
        "Enable-NetFirewallRule -DisplayGroup 'File and Printer Sharing'",
    ),
    step(
        "peer.reachable",
        Equals("True"),
        "The peer does not answer.",
        "Look at addresses, VLANs and firewalls of guests and hosts.",
    ),
    step(
        "peer.mtu",
        Equals("True"),
        "A link between the hosts has a smaller MTU than the adapter.",
        "Give the devices of both guests, the bridges and the switches between them the same MTU.",
    ),
    step(
        "peer.smb",
        Equals("True"),
        "The peer does not accept TCP connections of SMB (port 445), which come before RDMA.",
        "Open the port in the peer's firewall, and share a folder.",
    ),
    step(
        "peer.rdma",
        Equals("True"),
        "The peer offers no RDMA: Windows Pro has none, or RDMA or multichannel is off there.",
        "Run Test-Viordma.ps1 on the peer.",
    ),
    step(
        "connection.failures",
        Equals("0"),
        "Connections by RDMA fail, while those by TCP succeed: UDP port 4791 is blocked between the hosts.",
        "Open it in firewalls between the guests, those of the hosts (Proxmox) included. Windows' own does not see it.",
    ),
    step(
        "event.smbdirect.6",
        Equals("0"),
        "SMB Direct ended a connection, because no request completed in time.",
        "Look for loss between the hosts, and at the load of the hosts.",
    ),
    step(
        "connection.rdma",
        Equals("True"),
        "SMB's connections to the peer do not use RDMA.",
        "Look for other adapters that are faster, and for New-SmbMultichannelConstraint. Then Update-SmbMultichannelConnection.",
    ),
];

/// Returns the first step that does not hold. Unknown facts are not judged.
pub fn first_fault<'a>(fact: impl Fn(&str) -> Option<&'a str>) -> Option<&'static Step> {
    STEPS.iter().find(|step| fact(step.fact).is_some_and(|value| !step.test.holds(value)))
}

/// Returns the text of `Test-Viordma.json`.
#[must_use]
pub fn json() -> String {
    let steps: Vec<String> = STEPS
        .iter()
        .map(|step| {
            let (test, value) = match step.test {
                Test::Equals(text) => ("equals", text.to_owned()),
                Test::AtLeast(least) => ("atleast", least.to_string()),
            };
            let fields = [
                ("fact", step.fact),
                ("test", test),
                ("value", &value),
                ("reason", step.reason),
                ("remedy", step.remedy),
            ];
            let fields = fields.map(|(name, text)| format!("\"{name}\": \"{text}\""));
            format!("  {{ {} }}", fields.join(", "))
        })
        .collect();
    format!("[\n{}\n]\n", steps.join(",\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Facts of a system on which SMB Direct runs. Made up: no Windows system has run the script.
    const HEALTHY: &str = "os.build 26100, os.smbdirect True, adapter.present True, device.virtio True, device.driver viordma.sys, \
        device.problem 0, event.viordma.11 0, event.viordma.26 0, event.viordma.31 0, event.viordma.40 0, \
        event.viordma.43 0, adapter.status Up, adapter.mtu 9000, adapter.addresses 2, rdma.global Enabled, rdma.adapter True, \
        binding.client True, binding.server True, smb.client.multichannel True, smb.server.multichannel True, smb.client.rdma True, \
        smb.server.rdma True, firewall.smb True, event.smbdirect.1 0, event.smbdirect.6 0, event.smbdirect.10 0, peer.reachable True, \
        peer.mtu True, peer.smb True, peer.rdma True, connection.failures 0, connection.rdma True";

    fn facts<'a>(text: &'a str, changed: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, &'a str> {
        let mut facts: BTreeMap<_, _> =
            text.split(", ").map(|fact| fact.trim().split_once(' ').unwrap()).collect();
        facts.extend(changed.iter().copied());
        facts
    }

    fn fault(changed: &[(&str, &str)]) -> Option<&'static str> {
        let facts = facts(HEALTHY, changed);
        first_fault(|name| facts.get(name).copied()).map(|step| step.fact)
    }

    #[test]
    fn a_healthy_system_and_one_without_facts_have_no_fault() {
        assert_eq!(fault(&[]), None);
        assert!(first_fault(|_| None).is_none());
    }

    #[test]
    fn broken_systems_get_their_first_reason() {
        for (system, changed, expected) in [
            (
                "the peer is Windows Pro",
                &[("peer.rdma", "False"), ("connection.rdma", "False")][..],
                "peer.rdma",
            ),
            (
                "this system is Windows Pro",
                &[("os.smbdirect", "False"), ("smb.client.rdma", "False")],
                "os.smbdirect",
            ),
            (
                "multichannel is off",
                &[("smb.client.multichannel", "False"), ("connection.rdma", "False")],
                "smb.client.multichannel",
            ),
            (
                "RDMA is off globally",
                &[("rdma.global", "Disabled"), ("smb.client.rdma", "False")],
                "rdma.global",
            ),
            (
                "RDMA is off on the adapter",
                &[("rdma.adapter", "False"), ("smb.client.rdma", "False")],
                "rdma.adapter",
            ),
            ("frames are short for RDMA", &[("event.viordma.40", "1")], "event.viordma.40"),
            ("a bridge has another MTU", &[("peer.mtu", "False"), ("event.smbdirect.6", "2")], "peer.mtu"),
            (
                "a legacy device",
                &[("event.viordma.11", "1"), ("device.problem", "10"), ("adapter.status", "Not Present")],
                "event.viordma.11",
            ),
            (
                "an untrusted signature",
                &[("device.problem", "52"), ("adapter.status", "Not Present")],
                "device.problem",
            ),
            (
                "NetKVM runs the device",
                &[("device.driver", "netkvm.sys"), ("rdma.adapter", "False")],
                "device.driver",
            ),
            ("a firewall blocks SMB", &[("firewall.smb", "False"), ("peer.smb", "False")], "firewall.smb"),
            (
                "a firewall blocks UDP 4791",
                &[("connection.failures", "3"), ("connection.rdma", "False")],
                "connection.failures",
            ),
            (
                "few scatter/gather elements",
                &[("event.smbdirect.1", "1"), ("connection.rdma", "False")],
                "event.smbdirect.1",
            ),
            ("an old system", &[("os.build", "17763")], "os.build"),
        ] {
            assert_eq!(fault(changed), Some(expected), "{system}");
        }
    }

    #[test]
    fn facts_occur_once_and_the_script_reads_each() {
        let script = include_str!("../package/Test-Viordma.ps1");
        let names: BTreeSet<_> = STEPS.iter().map(|step| step.fact).collect();
        assert_eq!(names.len(), STEPS.len());
        for name in names {
            let is_event = name.rsplit_once('.').is_some_and(|(kind, number)| {
                script.contains(&format!("\"{kind}.$number\"")) && script.contains(number)
            });
            assert!(is_event || script.contains(&format!("'{name}'")), "{name}");
        }
    }

    #[test]
    fn texts_need_no_escapes() {
        for step in STEPS {
            assert!([step.reason, step.remedy].iter().all(|text| !text.contains(['"', '\\'])), "{step:?}");
        }
        assert_eq!(json().lines().count(), STEPS.len() + 2);
    }
}
