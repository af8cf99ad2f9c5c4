// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine's configuration: what the adapter's limits and the link require.

use crate::base::environment::Link;
use crate::base::limits::LIMITS;
use crate::base::state::affinity;
use crate::base::state::config::Config;
use roce::ReadLimits;
use roce_wire::PathMtu;

/// Returns the configuration of an engine that supports the adapter's limits.
pub fn new(link: Link, seed: [u8; 32], config: &Config) -> roce::Config {
    let saturate = |limit: u32| u8::try_from(limit).unwrap_or(u8::MAX);
    roce::Config {
        max_qps: LIMITS.qps,
        max_regions: LIMITS.mrs.saturating_add(LIMITS.mws),
        max_message: LIMITS.transfer,
        // Whatever a queue pair requested.
        //= R-CREATE-38
        read_sges: LIMITS.read_sges,
        max_reads: ReadLimits {
            inbound: saturate(LIMITS.inbound_reads),
            outbound: saturate(LIMITS.outbound_reads),
        },
        // Peers may ask for a larger path MTU than the frames of this link allow.
        max_mtu: PathMtu::largest_for(link.mtu as usize).unwrap_or(PathMtu::Bytes256),
        shards: config.shards,
        notice_queues: affinity::notice_queues(),
        timing: config.timing,
        congestion: config.congestion,
        early_placement: config.early_placement,
        trace: config.trace,
        ..roce::Config::new(guid(link.mac), seed)
    }
}

/// Returns the modified EUI-64 of a MAC address (RFC 4291, appendix A).
fn guid(mac: [u8; 6]) -> u64 {
    let [first, second, third, rest @ ..] = mac;
    let [fourth, fifth, sixth] = rest;
    u64::from_be_bytes([first ^ 2, second, third, 0xff, 0xfe, fourth, fifth, sixth])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        Link { mac: [0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde], mtu: 1500, scope: 0 }
    }

    /// The example of RFC 4291, appendix A.
    #[test]
    fn guid_is_the_modified_eui_64_of_the_mac_address() {
        assert_eq!(guid(link().mac), 0x3656_78ff_fe9a_bcde);
        // The bit of a locally administered address is inverted, too.
        assert_eq!(guid([2, 0, 0, 0, 0, 1]), 0x0000_00ff_fe00_0001);
    }

    #[test]
    fn engine_supports_the_limits_that_the_adapter_reports_and_the_mtu_of_the_link() {
        let config = Config::default();
        let engine = new(link(), [0; 32], &config);
        assert_eq!(engine.max_qps, LIMITS.qps);
        assert_eq!(engine.max_regions, LIMITS.mrs + LIMITS.mws);
        assert_eq!(engine.max_message, LIMITS.transfer);
        assert_eq!(u32::from(engine.max_reads.inbound), LIMITS.inbound_reads);
        assert_eq!(u32::from(engine.max_reads.outbound), LIMITS.outbound_reads);
        assert_eq!(engine.max_mtu, PathMtu::Bytes1024);
    }

    #[test]
    fn timing_and_congestion_control_reach_the_engine() {
        let timing = roce::Timing { retries: 3, ..roce::Timing::default() };
        let mode = roce::CongestionMode::React;
        let congestion = roce::CongestionConfig { mode, ..roce::CongestionConfig::default() };
        let engine = new(link(), [0; 32], &Config { timing, congestion, ..Config::default() });
        assert_eq!((engine.timing.retries, engine.congestion.mode), (3, mode));
    }

    #[test]
    fn the_sink_of_traces_reaches_the_engine() {
        assert!(new(link(), [0; 32], &Config::default()).trace.is_none());
        let trace = Some(roce::Trace { sink: |_, _| {}, context: 7 });
        let engine = new(link(), [0; 32], &Config { trace, ..Config::default() });
        assert_eq!(engine.trace.map(|trace| trace.context), Some(7));
    }

    #[test]
    fn the_setting_for_early_placement_reaches_the_engine() {
        assert!(new(link(), [0; 32], &Config::default()).early_placement);
        let config = Config { early_placement: false, ..Config::default() };
        assert!(!new(link(), [0; 32], &config).early_placement);
    }
}
