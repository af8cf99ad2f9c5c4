// SPDX-License-Identifier: MIT OR Apache-2.0

//! The work of a PC's firmware before a system starts: configuration space is made accessible, BARs get addresses, a root
//! port gets bus numbers and a window.

use std::io;

use device_sim::function::{Bar, Ports};
use trapped_access::Width;

use crate::qtest::Qtest;

/// Where firmware of this machine places the memory-mapped configuration space of all functions.
const CONFIG_SPACE: u64 = 0xb000_0000;
/// Addresses for BARs: below 4 GiB and above all memory, and ports.
const MEMORY: u64 = 0xe000_0000;
const HIGH_MEMORY: u64 = 0x80_0000_0000;
const PORTS: u16 = 0xc000;
/// Granularity of a bridge's memory window.
const WINDOW: u64 = 1 << 20;

/// Ports through which the host bridge is configured first, and its register for the address of configuration space.
const ADDRESS_PORT: u16 = 0xcf8;
const DATA_PORT: u16 = 0xcfc;
const HOST_BRIDGE_ADDRESS: u32 = 0x8000_0060;

/// Offsets in configuration space.
const COMMAND: u16 = 0x04;
const FIRST_BAR: u16 = 0x10;
const BUS_NUMBERS: u16 = 0x18;
const WINDOW_REGISTER: u16 = 0x20;
const PREFETCHABLE_WINDOW: u16 = 0x24;
const CAPABILITIES: u16 = 0x34;

const COMMAND_PORTS: u16 = 1;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_NO_LINE: u16 = 1 << 10;
/// A prefetchable window that contains nothing: its base is above its limit.
const CLOSED: u32 = 0x0000_fff0;

const BAR_IS_PORTS: u32 = 1;
const BAR_TYPE: u32 = 0b110;
const BAR_IS_64_BIT: u32 = 0b100;
/// The most capabilities that fit configuration space.
const MAX_CAPABILITIES: usize = 48;

/// Bus and device number of a function; its function number is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    pub bus: u8,
    pub device: u8,
}

impl Address {
    /// Returns where byte `offset` of its configuration space is mapped.
    #[must_use]
    pub fn config(self, offset: u16) -> u64 {
        CONFIG_SPACE | u64::from(self.bus) << 20 | u64::from(self.device) << 15 | u64::from(offset)
    }
}

/// The firmware's view of a machine: which addresses are assigned.
pub struct Firmware<'a> {
    qtest: &'a mut Qtest,
    next: u64,
    next_high: u64,
    next_port: u16,
}

impl<'a> Firmware<'a> {
    /// Makes configuration space accessible.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn start(qtest: &'a mut Qtest) -> io::Result<Self> {
        for (register, value) in
            [(HOST_BRIDGE_ADDRESS + 4, 0), (HOST_BRIDGE_ADDRESS, CONFIG_SPACE as u32 | 1)]
        {
            qtest.write_port(ADDRESS_PORT, register)?;
            qtest.write_port(DATA_PORT, value)?;
        }
        Ok(Self { qtest, next: MEMORY, next_high: HIGH_MEMORY, next_port: PORTS })
    }

    /// Gives the root port `port` the bus number `bus` and a window of memory, and assigns the BARs of the only device
    /// behind it.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn open_port(&mut self, port: Address, bus: u8) -> io::Result<(Vec<Bar>, Option<Ports>)> {
        self.next = self.next.next_multiple_of(WINDOW);
        let base = self.next;
        self.write(port, BUS_NUMBERS, Width::Dword, u64::from(bus) << 16 | u64::from(bus) << 8)?;
        let assigned = self.assign(Address { bus, device: 0 }, false)?;
        self.next = self.next.next_multiple_of(WINDOW);
        let limit = self.next - WINDOW;
        let window = limit & 0xffff_0000 | base >> 16;
        self.write(port, WINDOW_REGISTER, Width::Dword, window)?;
        self.write(port, PREFETCHABLE_WINDOW, Width::Dword, CLOSED.into())?;
        self.write(port, COMMAND, Width::Word, (COMMAND_MEMORY | COMMAND_BUS_MASTER).into())?;
        Ok(assigned)
    }

    /// Assigns addresses to the BARs of a function and has it decode them; bus mastering is left to its driver. `high` allows
    /// addresses above 4 GiB.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn assign(&mut self, function: Address, high: bool) -> io::Result<(Vec<Bar>, Option<Ports>)> {
        let (mut bars, mut ports) = (Vec::new(), None);
        let mut number = 0;
        while number < 6 {
            let register = FIRST_BAR + 4 * u16::from(number);
            self.write(function, register, Width::Dword, u32::MAX.into())?;
            let low = self.read(function, register, Width::Dword)? as u32;
            if low & BAR_IS_PORTS != 0 {
                let count = (!(low & !0b11) as u16).wrapping_add(1);
                let start = self.next_port;
                self.next_port += count;
                self.write(function, register, Width::Dword, start.into())?;
                ports = Some(Ports { start, count });
                number += 1;
                continue;
            }
            let is_64_bit = low & BAR_TYPE == BAR_IS_64_BIT;
            if low & !0xf != 0 {
                let len = u64::from(!(low & !0xf)) + 1;
                let next = if is_64_bit && high { &mut self.next_high } else { &mut self.next };
                let start = next.next_multiple_of(len);
                *next = start + len;
                self.write(function, register, Width::Dword, start)?;
                if is_64_bit {
                    self.write(function, register + 4, Width::Dword, start >> 32)?;
                }
                bars.push(Bar { number, start, len });
            }
            number += if is_64_bit { 2 } else { 1 };
        }
        let with_ports = if ports.is_some() { COMMAND_PORTS } else { 0 };
        let command = with_ports | COMMAND_MEMORY | COMMAND_NO_LINE;
        self.write(function, COMMAND, Width::Word, command.into())?;
        Ok((bars, ports))
    }

    /// Lets a function without a driver use memory and send messages.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn enable_bus_mastering(&mut self, function: Address) -> io::Result<()> {
        let command = self.read(function, COMMAND, Width::Word)? as u16 | COMMAND_BUS_MASTER;
        self.write(function, COMMAND, Width::Word, command.into())
    }

    /// Returns identifier and offset of each capability of a function.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn capabilities(&mut self, function: Address) -> io::Result<Vec<(u8, u16)>> {
        let mut found = Vec::new();
        let mut at = self.read(function, CAPABILITIES, Width::Byte)? as u16;
        while at != 0 && found.len() < MAX_CAPABILITIES {
            let header = self.read(function, at, Width::Word)? as u16;
            let [id, next] = header.to_le_bytes();
            found.push((id, at));
            at = next.into();
        }
        Ok(found)
    }

    /// Reads configuration space.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn read(&mut self, function: Address, offset: u16, width: Width) -> io::Result<u64> {
        self.qtest.read(function.config(offset), width)
    }

    fn write(&mut self, function: Address, offset: u16, width: Width, value: u64) -> io::Result<()> {
        self.qtest.write(function.config(offset), width, value)
    }
}
