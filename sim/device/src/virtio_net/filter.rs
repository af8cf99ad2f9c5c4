// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive filters that the control queue sets. (virtio §12)

use super::features::Features;
use crate::checksum;

/// Entries of the MAC table, unicast and multicast together.
const MAC_TABLE_LEN: usize = 64;

/// VLAN IDs, of 12 bits.
const VLANS: usize = 4096;

type Mac = [u8; 6];

/// Receive filters: they pass every frame until the driver sets them, but no tagged frame from then on, if the driver accepted
/// `CTRL_VLAN`, unless it adds the frame's VLAN.
pub struct Filter {
    permanent: Mac,
    mac: Mac,
    promiscuous: bool,
    all_multicast: bool,
    table: Vec<Mac>,
    /// By ID; `None` if VLANs are not filtered.
    vlans: Option<Box<[bool; VLANS]>>,
}

impl Filter {
    pub fn new(mac: Mac) -> Self {
        Self { permanent: mac, mac, promiscuous: true, all_multicast: false, table: Vec::new(), vlans: None }
    }

    /// The driver has accepted these features.
    pub fn start(&mut self, accepted: Features) {
        self.vlans = accepted.contains(Features::CTRL_VLAN).then(|| Box::new([false; VLANS]));
    }

    /// Returns the VLANs whose frames pass; `None` for all.
    pub fn vlans(&self) -> Option<Vec<u16>> {
        let vlans = self.vlans.as_ref()?;
        Some((0..).zip(vlans.iter()).filter(|(_, passes)| **passes).map(|(id, _)| id).collect())
    }

    /// As after power-on; with `keeps_mac`, except for the MAC address.
    pub fn reset(&mut self, keeps_mac: bool) {
        let mac = if keeps_mac { self.mac } else { self.permanent };
        *self = Self { mac, ..Self::new(self.permanent) };
    }

    pub fn mac(&self) -> Mac {
        self.mac
    }

    pub fn accepts(&self, frame: &[u8]) -> bool {
        let Some(&to) = frame.first_chunk::<6>() else { return false };
        if self.promiscuous {
            return true;
        }
        let id = checksum::vlan_id(frame).zip(self.vlans.as_ref());
        if id.is_some_and(|(id, vlans)| !vlans[usize::from(id)]) {
            return false;
        }
        let multicast = to[0] & 1 != 0;
        to == self.mac || to == [0xff; 6] || multicast && self.all_multicast || self.table.contains(&to)
    }

    /// Executes a command; `None` when it is unknown or malformed.
    pub fn command(&mut self, class: u8, command: u8, data: &[u8], accepted: Features) -> Option<()> {
        match (class, command) {
            (0, 0 | 1) if accepted.contains(Features::CTRL_RX) => {
                let &[on] = data else { return None };
                *if command == 0 { &mut self.promiscuous } else { &mut self.all_multicast } = on != 0;
            }
            (1, 0) if accepted.contains(Features::CTRL_RX) => {
                let (unicast, rest) = macs(data)?;
                let (multicast, rest) = macs(rest)?;
                if !rest.is_empty() || unicast.len() + multicast.len() > MAC_TABLE_LEN {
                    return None;
                }
                self.table = [unicast, multicast].concat();
            }
            (2, 0 | 1) => {
                let id = usize::from(u16::from_le_bytes(data.try_into().ok()?));
                *self.vlans.as_mut()?.get_mut(id)? = command == 0;
            }
            (1, 1) if accepted.contains(Features::CTRL_MAC_ADDR) => self.mac = data.try_into().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// Splits off a count and that number of addresses.
fn macs(data: &[u8]) -> Option<(Vec<Mac>, &[u8])> {
    let (count, rest) = data.split_first_chunk::<4>()?;
    let (macs, rest) = rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(6)?)?;
    Some((macs.as_chunks::<6>().0.to_vec(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];
    const GROUP: Mac = [1, 0, 0x5e, 0, 0, 1];

    #[test]
    fn filter_passes_every_frame_until_it_is_set() {
        let mut filter = Filter::new(MINE);
        assert!(filter.accepts(&OTHER));
        assert!(filter.command(0, 0, &[0], Features::DEFAULT).is_some());
        assert!(filter.accepts(&MINE));
        assert!(filter.accepts(&[0xff; 6]));
        assert!(!filter.accepts(&OTHER));
        assert!(!filter.accepts(&GROUP));
    }

    #[test]
    fn tagged_frames_pass_in_promiscuous_mode_and_if_their_vlan_was_added() {
        let tagged =
            |id: u16| [&MINE[..], &OTHER, &[0x81, 0], &(0xe000 | id).to_be_bytes(), &[8, 0]].concat();
        let mut filter = Filter::new(MINE);
        assert_eq!(filter.command(2, 0, &[5, 0], Features::DEFAULT), None, "not accepted");
        filter.start(Features::DEFAULT);
        assert!(filter.accepts(&tagged(5)));
        assert!(filter.command(0, 0, &[0], Features::DEFAULT).is_some());
        assert!(!filter.accepts(&tagged(0)) && !filter.accepts(&tagged(5)) && filter.accepts(&MINE));
        assert!(filter.command(2, 0, &[5, 0], Features::DEFAULT).is_some());
        assert_eq!(filter.vlans(), Some(vec![5]));
        assert!(filter.accepts(&tagged(5)) && !filter.accepts(&tagged(6)) && filter.accepts(&MINE));
        assert!(filter.command(2, 1, &[5, 0], Features::DEFAULT).is_some());
        assert!(!filter.accepts(&tagged(5)));
        for data in [&[][..], &[5], &[0, 0x10], &[5, 0, 0]] {
            assert_eq!(filter.command(2, 0, data, Features::DEFAULT), None, "{data:?}");
        }
        filter.start(Features::DEFAULT.without(Features::CTRL_VLAN));
        assert!(filter.accepts(&tagged(5)));
    }

    #[test]
    fn mac_table_command_needs_unicast_and_multicast_part() {
        let mut filter = Filter::new(MINE);
        let both = [&1_u32.to_le_bytes()[..], &OTHER, &1_u32.to_le_bytes(), &GROUP].concat();
        assert!(filter.command(1, 0, &both[..10], Features::DEFAULT).is_none());
        assert!(filter.command(1, 0, &both, Features::DEFAULT).is_some());
        assert!(filter.command(0, 0, &[0], Features::DEFAULT).is_some());
        assert!(filter.accepts(&OTHER) && filter.accepts(&GROUP));
    }

    #[test]
    fn reset_undoes_what_the_driver_has_set() {
        let mut filter = Filter::new(MINE);
        let both = [&1_u32.to_le_bytes()[..], &OTHER, &1_u32.to_le_bytes(), &GROUP].concat();
        filter.start(Features::DEFAULT);
        for (class, command, data) in [(1, 0, &both[..]), (0, 0, &[0]), (0, 1, &[1]), (2, 0, &[5, 0])] {
            assert!(filter.command(class, command, data, Features::DEFAULT).is_some());
        }
        filter.reset(false);
        assert_eq!(filter.vlans(), None);
        assert!(filter.accepts(&[3; 6]), "promiscuous");
        assert!(filter.command(0, 0, &[0], Features::DEFAULT).is_some());
        assert!(filter.accepts(&MINE));
        assert!(!filter.accepts(&OTHER), "no table");
        assert!(!filter.accepts(&GROUP), "neither a table nor all multicast frames");
    }

    #[test]
    fn address_that_the_driver_has_set_is_kept_in_a_reset_only_if_asked_for() {
        for (keeps_mac, mac) in [(true, OTHER), (false, MINE)] {
            let mut filter = Filter::new(MINE);
            assert!(filter.command(1, 1, &OTHER, Features::DEFAULT).is_some());
            filter.reset(keeps_mac);
            assert_eq!(filter.mac(), mac);
        }
    }
}
