// SPDX-License-Identifier: MIT OR Apache-2.0

//! A NIC on a test bench without kernel and threads, with manual time; the driver of `crates/virtio-net` runs on it.
#![allow(unsafe_code, reason = "maps memory that a driver and a device share")]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs::File,
    ops::ControlFlow,
    os::fd::FromRawFd,
    ptr::NonNull,
    rc::Rc,
    sync::{Arc, Mutex},
};

use device_sim::{
    Bus, DmaSpace, Misuse, Nic, NicOptions, Registers as _,
    pci::{self, Message},
};
use trapped_access::Width;
use virtio_net::{
    Control, ControlQueue, DmaBlock, FrameInfo, Hal, Layout, Options, PairQueue, Polled, ReceiveQueue,
    Registers, TransmitQueue,
};

const MEMORY: usize = 64 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// The machine: events are queued until the test advances time.
#[derive(Default)]
pub struct Machine {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: u64,
    sequence: u64,
    jobs: BTreeMap<(u64, u64), Job>,
    messages: Vec<Message>,
    misuse: Vec<Misuse>,
}

impl Machine {
    /// Runs events until none is left, and advances time to theirs.
    pub fn settle(&self) {
        loop {
            let next = {
                let mut state = self.state.lock().unwrap();
                let Some(((time, _), job)) = state.jobs.pop_first() else { return };
                state.now = state.now.max(time);
                job
            };
            next();
        }
    }

    /// Returns the message data received since the last call.
    pub fn messages(&self) -> Vec<u32> {
        let messages = std::mem::take(&mut self.state.lock().unwrap().messages);
        messages.into_iter().map(|message| message.data).collect()
    }

    /// Returns the misuses that the device reported since the last call.
    pub fn misuse(&self) -> Vec<String> {
        let misuse = std::mem::take(&mut self.state.lock().unwrap().misuse);
        misuse.into_iter().map(|misuse| misuse.text).collect()
    }

    fn report(&self, misuse: Misuse) {
        self.state.lock().unwrap().misuse.push(misuse);
    }
}

impl Bus for Machine {
    fn now(&self) -> u64 {
        self.state.lock().unwrap().now
    }

    fn at(&self, time: u64, job: Job) {
        let mut state = self.state.lock().unwrap();
        state.sequence += 1;
        let key = (time, state.sequence);
        state.jobs.insert(key, job);
    }

    fn message(&self, message: Message) {
        self.state.lock().unwrap().messages.push(message);
    }

    fn line(&self) {}

    fn misuse(&self, misuse: Misuse) {
        self.report(misuse);
    }

    fn is_alive(&self) -> bool {
        true
    }
}

/// A NIC in a machine, and memory to share with it. Clones are the same.
#[derive(Clone)]
pub struct Bench {
    pub machine: Arc<Machine>,
    pub nic: Arc<Nic>,
    base: NonNull<u8>,
    next: Rc<RefCell<usize>>,
    /// The driver's clock, in nanoseconds: the sum of its delays.
    time: Rc<Cell<u64>>,
}

impl Bench {
    /// Length in bytes of a memory BAR.
    fn bar_len(bar: u8) -> Option<u64> {
        match bar {
            pci::MSIX_BAR => Some(pci::MSIX_BAR_LEN),
            pci::VIRTIO_BAR => Some(pci::VIRTIO_BAR_LEN),
            _ => None,
        }
    }

    pub fn new(options: NicOptions) -> Self {
        Self::on(&Arc::new(Machine::default()), options)
    }

    /// A NIC in a machine that has others.
    pub fn on(machine: &Arc<Machine>, options: NicOptions) -> Self {
        // SAFETY: the name is a NUL-terminated string.
        let fd = unsafe { libc::memfd_create(c"bench".as_ptr(), 0) };
        assert!(fd >= 0, "a memory file");
        // SAFETY: a descriptor just made, with no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(MEMORY as u64).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice; it lives as long as the process.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), MEMORY, protection, libc::MAP_SHARED, fd, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let memory = Arc::new(DmaSpace::at(DmaSpace::REMAPPED, file, MEMORY).unwrap());
        let nic = Nic::new(machine.clone(), memory, options);
        for vector in 0..nic.options().vectors {
            let message = Message { address: 0xfee0_0000, data: vector.into() };
            nic.with_config(|config| config.msix.program(vector, message));
        }
        nic.with_config(|config| {
            config.enable_msix(true);
            config.set_command(pci::COMMAND_AT_START | pci::COMMAND_BUS_MASTER);
        });
        let base = NonNull::new(base.cast()).unwrap();
        Self { machine: machine.clone(), nic, base, next: Rc::new(RefCell::new(0x1000)), time: Rc::default() }
    }

    /// Brings the device up as the driver does, with one pair.
    pub fn bring_up(&self) -> Result<Driver, virtio_net::Error> {
        self.bring_up_with(1)
    }

    /// Brings the device up with at most so many queue pairs, of which it uses the first.
    pub fn bring_up_with(&self, pairs: u16) -> Result<Driver, virtio_net::Error> {
        let mut config = [0; pci::CONFIG_LEN];
        self.nic.with_config(|space| space.read(0, &mut config));
        let layout = Layout::find(&config, Self::bar_len)?;
        let mut control = Control::new(self.clone(), self.clone(), layout);
        control.negotiate()?;
        let options = Options {
            transmit_frame: 1514,
            receive_frame: 1514,
            pairs,
            receive_size: 256,
            transmit_size: 256,
            messages: self.nic.options().vectors.into(),
        };
        let mut nic = virtio_net::Nic::new(self, &mut control, &options)?;
        nic.start(&mut control)?;
        self.machine.settle();
        Ok(Driver { nic: Some(nic), control })
    }

    pub fn write(&self, offset: u64, width: Width, value: u64) {
        if let Err(misuse) = self.nic.write(pci::VIRTIO_BAR, offset, width, value) {
            self.machine.report(misuse);
        }
    }

    /// Reads a 16-bit register of the common configuration.
    pub fn read_common(&self, offset: u64) -> u64 {
        self.read(pci::VIRTIO_BAR, pci::COMMON + offset, Width::Word)
    }

    fn read(&self, bar: u8, offset: u64, width: Width) -> u64 {
        match device_sim::Registers::read(&*self.nic, bar, offset, width) {
            Ok(value) => value,
            Err(misuse) => {
                self.machine.report(misuse);
                width.all_ones()
            }
        }
    }

    /// Returns the address of the descriptor (0), driver (1) or device area (2) of a queue.
    pub fn area(&self, queue: u16, area: u64) -> u64 {
        self.write(pci::COMMON + 0x16, Width::Word, queue.into());
        let half = |at| self.read(pci::VIRTIO_BAR, pci::COMMON + 0x20 + 8 * area + at, Width::Dword);
        half(0) | half(4) << 32
    }

    /// Overwrites `len` bytes at an address of the device with a little-endian value.
    pub fn poke(&self, address: u64, len: usize, value: u64) {
        let offset = (address - DmaSpace::REMAPPED) as usize;
        assert!(offset + len <= MEMORY && len <= 8);
        // SAFETY: inside the mapping, as just asserted.
        let at = unsafe { self.base.add(offset) };
        // SAFETY: the mapping is plain memory that nothing else accesses during the call.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(&value.to_le()).cast(), len) };
    }

    /// Returns eight bytes at an address of the device.
    pub fn peek(&self, address: u64) -> u64 {
        let offset = (address - DmaSpace::REMAPPED) as usize;
        assert!(offset + 8 <= MEMORY);
        // SAFETY: inside the mapping, as just asserted.
        let at = unsafe { self.base.add(offset) };
        // SAFETY: the mapping is plain memory that nothing else accesses during the call.
        u64::from_le(unsafe { at.cast().read_unaligned() })
    }

    /// Unmaps memory from the device while the driver uses it.
    pub fn unmap_all(&self) {
        for offset in (0x1000..*self.next.borrow()).step_by(0x1000) {
            self.nic.memory().unmap(self.nic.memory().logical(offset));
        }
    }
}

pub struct Driver {
    nic: Option<virtio_net::Nic<Bench, Bench>>,
    pub control: Control<Bench, Bench>,
}

impl Driver {
    pub fn nic(&mut self) -> &mut virtio_net::Nic<Bench, Bench> {
        self.nic.as_mut().unwrap()
    }

    /// The receive queue of a pair.
    pub fn receive(&mut self, pair: usize) -> &mut ReceiveQueue<Bench, Bench> {
        &mut self.nic().pairs[pair].receive
    }

    /// Polls the receive queue of a pair, until `budget` buffers are used up.
    pub fn poll(
        &mut self,
        pair: usize,
        budget: u32,
        mut sink: impl FnMut(&mut [u8], FrameInfo),
    ) -> Result<Polled, virtio_net::Error> {
        self.receive(pair).poll(budget, |frame, info| {
            sink(frame, info);
            ControlFlow::Continue(())
        })
    }

    /// The transmit queue of a pair.
    pub fn transmit(&mut self, pair: usize) -> &mut TransmitQueue<Bench, Bench> {
        &mut self.nic().pairs[pair].transmit
    }

    /// Sends a frame by a pair.
    pub fn send_by(&mut self, pair: usize, frame: &[u8]) {
        let queue = self.transmit(pair);
        queue.slot().expect("a slot is free")[..frame.len()].copy_from_slice(frame);
        queue.commit(frame.len());
        queue.kick();
    }

    pub fn commands(&mut self) -> &mut ControlQueue<Bench, Bench> {
        self.nic().commands.as_mut().unwrap()
    }

    /// Sets how many pairs the device uses.
    pub fn set_pairs(&mut self, pairs: u16) -> Result<bool, virtio_net::Error> {
        self.commands().set_pairs(pairs, None, |waited| waited < std::time::Duration::from_secs(2))
    }

    /// Has the device reset the transmit queue of a pair, and programs it again.
    pub fn reset_queue(&mut self, pair: u16) {
        let Self { nic: Some(nic), control } = self else { panic!("a driver has queues") };
        let [_, vector] = nic.vectors.of_pair(pair);
        let queue = &mut nic.pairs[usize::from(pair)].transmit;
        queue.stop();
        control.reset_queue(PairQueue::Transmit(pair)).unwrap();
        queue.reprogram(control, vector).unwrap();
    }

    pub fn send(&mut self, frame: &[u8]) -> bool {
        let queue = self.transmit(0);
        let Some(slot) = queue.slot() else { return false };
        slot[..frame.len()].copy_from_slice(frame);
        queue.commit(frame.len());
        true
    }

    pub fn kick(&mut self) {
        self.transmit(0).kick();
    }

    pub fn received(&mut self) -> Result<Vec<Vec<u8>>, virtio_net::Error> {
        self.received_by(0)
    }

    /// Returns the frames that a pair received.
    pub fn received_by(&mut self, pair: usize) -> Result<Vec<Vec<u8>>, virtio_net::Error> {
        let mut frames = Vec::new();
        self.poll(pair, 10_000, |frame, _| frames.push(frame.to_vec()))?;
        Ok(frames)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.control.reset();
        self.nic = None;
    }
}

// SAFETY: blocks are disjoint, page-aligned, zeroed ranges of a mapping that lives as long as the process.
unsafe impl Hal for Bench {
    fn allocate(&self, len: usize) -> Option<DmaBlock> {
        let offset = *self.next.borrow();
        *self.next.borrow_mut() = (offset + len).next_multiple_of(0x1000);
        assert!(*self.next.borrow() < MEMORY, "the test needs more memory");
        let device_address = self.nic.memory().logical(offset);
        self.nic.memory().map(device_address, len as u64);
        // SAFETY: inside the mapping, as just asserted.
        let address = unsafe { self.base.add(offset) };
        Some(DmaBlock { address, device_address, len })
    }

    unsafe fn release(&self, block: DmaBlock) {
        assert!(
            !self.nic.uses(block.device_address, block.len as u64),
            "the device still uses a freed block"
        );
        self.nic.memory().unmap(block.device_address);
    }

    fn is_remapped(&self, _: &DmaBlock) -> bool {
        self.nic.memory().is_remapped()
    }

    fn allow_dma(&self, is_allowed: bool) {
        self.nic.with_config(|config| {
            let others = config.command() & !pci::COMMAND_BUS_MASTER;
            config.set_command(if is_allowed { others | pci::COMMAND_BUS_MASTER } else { others });
        });
    }

    fn delay(&self, microseconds: u32) {
        self.stall(microseconds);
        self.machine.settle();
    }

    fn stall(&self, microseconds: u32) {
        self.time.set(self.time.get() + u64::from(microseconds) * 1000);
    }

    fn now(&self) -> u64 {
        self.time.get()
    }
}

impl Registers for Bench {
    fn read8(&self, bar: u8, offset: u64) -> u8 {
        self.read(bar, offset, Width::Byte) as u8
    }

    fn read16(&self, bar: u8, offset: u64) -> u16 {
        self.read(bar, offset, Width::Word) as u16
    }

    fn read32(&self, bar: u8, offset: u64) -> u32 {
        self.read(bar, offset, Width::Dword) as u32
    }

    fn write8(&self, _bar: u8, offset: u64, value: u8) {
        Bench::write(self, offset, Width::Byte, value.into());
    }

    fn write16(&self, _bar: u8, offset: u64, value: u16) {
        Bench::write(self, offset, Width::Word, value.into());
    }

    fn write32(&self, _bar: u8, offset: u64, value: u32) {
        Bench::write(self, offset, Width::Dword, value.into());
    }
}
