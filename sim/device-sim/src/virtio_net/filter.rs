// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive filters that the control queue sets. (virtio §12)

use super::features::Features;

/// Entries of the MAC table, unicast and multicast together.
const MAC_TABLE_LEN: usize = 64;

type Mac = [u8; 6];

/// Receive filters: they pass every frame until the driver sets them.
pub struct Filter {
    permanent: Mac,
    mac: Mac,
    promiscuous: bool,
    all_multicast: bool,
    table: Vec<Mac>,
}

impl Filter {
    pub fn new(mac: Mac) -> Self {
        Self { permanent: mac, mac, promiscuous: true, all_multicast: false, table: Vec::new() }
    }

    pub fn reset(&mut self) {
        *self = Self::new(self.permanent);
    }

    pub fn mac(&self) -> Mac {
        self.mac
    }

    pub fn accepts(&self, frame: &[u8]) -> bool {
        let Some(&to) = frame.first_chunk::<6>() else { return false };
        let multicast = to[0] & 1 != 0;
        self.promiscuous
            || to == self.mac
            || to == [0xff; 6]
            || multicast && self.all_multicast
            || self.table.contains(&to)
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
    fn mac_table_command_needs_unicast_and_multicast_part() {
        let mut filter = Filter::new(MINE);
        let both = [&1_u32.to_le_bytes()[..], &OTHER, &1_u32.to_le_bytes(), &GROUP].concat();
        assert!(filter.command(1, 0, &both[..10], Features::DEFAULT).is_none());
        assert!(filter.command(1, 0, &both, Features::DEFAULT).is_some());
        assert!(filter.command(0, 0, &[0], Features::DEFAULT).is_some());
        assert!(filter.accepts(&OTHER) && filter.accepts(&GROUP));
    }
}
