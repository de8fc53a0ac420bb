//! Calibration: measures the latencies of waking a thread and of handing work over, and the latency
//! and bandwidth of memory. The measurement takes some milliseconds, runs once, and is stored in a
//! file beside the compiled programs. The cache sizes are read.

mod memory;

use crate::affinity::available;
use crate::cache_directory;
use crate::wait::spin;
use girih_exec::tuning::{self, Machine, Memory};
use girih_runtime::{Error, Result, private};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The machine as read and measured, and the tuning parameters computed from it.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Cache sizes as read, latencies and bandwidths as measured.
    pub machine: Machine,
    /// Names and values of the parameters, computed or set by `GIRIH_TUNING`.
    pub parameters: Vec<(&'static str, usize)>,
    /// The file of the measurements; `None` if nothing is stored on disk.
    pub file: Option<PathBuf>,
}

/// The number of wakes that are measured. The second fastest is used, since other load only adds
/// time.
const WAKES: usize = 7;
/// The number of times that round trips are measured, of which the fastest is used, and the number
/// of round trips of each measurement.
const ROUNDS: u64 = 10;
const ANSWERS: u64 = 20;
/// The largest latencies of a machine without other load. If larger ones are measured, the threads
/// waited for a CPU: the process uses the defaults, and nothing is stored.
const MAX_WAKE_NS: usize = 300_000;
const MAX_HANDOVER_NS: usize = 10_000;
/// The maximum size of a calibration file.
const MAX_BYTES: u64 = 1 << 16;
/// The longest wait for the other thread. If the other thread gets no CPU for so long, nothing is
/// measured.
const PATIENCE: Duration = Duration::from_millis(20);

/// Computes the process's parameters, with a calibration if this machine has none on file.
///
/// Errors: [`Error::Configuration`] for an invalid `GIRIH_TUNING`.
pub(crate) fn install() -> Result<()> {
    tuning::install(calibrated).map_err(|error| Error::Configuration {
        variable: tuning::VARIABLE,
        value: error.text,
        expected: "NAME=VALUE with whole numbers, above zero for most names, separated by commas; \
                   `girih info` prints the names",
    })
}

/// The machine with the measurements from the file, or with new measurements.
fn calibrated() -> Machine {
    let machine = Machine::read();
    let file = file();
    if let Some(stored) = file.as_deref().and_then(|file| load(file, &machine)) {
        return stored;
    }
    let Some(measured) = measure(&machine).filter(is_plausible) else { return machine };
    if let Some(file) = file {
        store(&file, &measured);
    }
    measured
}

/// Whether the latencies can be those of a machine without other load.
fn is_plausible(machine: &Machine) -> bool {
    machine.wake_ns <= MAX_WAKE_NS && machine.handover_ns <= MAX_HANDOVER_NS
}

/// The first line of a calibration file. A file with other cache sizes or another number of
/// processors belongs to another machine; the processor's name is not compared.
fn identity(machine: &Machine) -> String {
    let Machine { l1_bytes, l2_bytes, l3_bytes, .. } = machine;
    format!("caches {l1_bytes} {l2_bytes} {l3_bytes}, {} processors", available())
}

/// The calibration in a file; `None` if it cannot be read or belongs to another machine.
fn load(file: &Path, machine: &Machine) -> Option<Machine> {
    let bytes = private::read(file, MAX_BYTES).ok()?;
    parse(std::str::from_utf8(&bytes).ok()?, machine)
}

fn parse(text: &str, machine: &Machine) -> Option<Machine> {
    let mut lines = text.lines();
    (lines.next()? == identity(machine)).then_some(())?;
    let mut value = |name: &str| {
        let line = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?;
        line.parse::<usize>().ok().filter(|&value| value > 0)
    };
    let mut measured = machine.clone();
    for (name, field) in fields(&mut measured) {
        *field = value(name)?;
    }
    Some(measured).filter(is_plausible)
}

fn print(machine: &Machine) -> String {
    let lines = fields(&mut machine.clone()).map(|(name, value)| format!("{name} {value}\n"));
    format!("{}\n{}", identity(machine), lines.concat())
}

/// The measurements with their names in the file, in order.
fn fields(machine: &mut Machine) -> [(&'static str, &mut usize); 6] {
    let Machine { wake_ns, handover_ns, memory, .. } = machine;
    let Memory { latency_ns, read_mbps, write_mbps, stream_mbps } = memory;
    [
        ("wake_ns", wake_ns),
        ("handover_ns", handover_ns),
        ("memory_latency_ns", latency_ns),
        ("memory_read_mbps", read_mbps),
        ("memory_write_mbps", write_mbps),
        ("memory_stream_mbps", stream_mbps),
    ]
}

/// Stores a calibration atomically. If that fails, the next process measures again.
fn store(file: &Path, machine: &Machine) {
    let _ = private::write(file, print(machine).as_bytes());
}

/// The path of the process's calibration file, which need not exist; `None` if nothing may be stored
/// on disk.
pub(crate) fn file() -> Option<PathBuf> {
    cache_directory::beside_programs("calibration")
}

/// Measures memory, and the latencies of threads with a second thread; `None` on one processor, or
/// if the thread cannot start or gets no CPU.
fn measure(machine: &Machine) -> Option<Machine> {
    if available() < 2 {
        return None;
    }
    let memory = memory::measure().unwrap_or_else(|| machine.memory.clone());
    let echo = Echo::default();
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().name("girih-calibration".into());
        let other = other.spawn_scoped(scope, || echo.answer()).ok()?;
        let measured = wake_latency(&echo, other.thread()).zip(handover(&echo));
        echo.send(STOP);
        other.thread().unpark();
        let (wake_ns, handover_ns) = measured?;
        Some(Machine { wake_ns, handover_ns, memory, ..machine.clone() })
    })
}

/// The message that ends the other thread.
const STOP: u64 = u64::MAX;
/// The bit of a message that makes the other thread park.
const PARK: u64 = 1 << 63;

/// Two words in cache lines of their own: a message, and its echo.
#[derive(Default)]
struct Echo {
    message: Line,
    answer: Line,
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Echo {
    fn send(&self, message: u64) {
        self.message.0.store(message, Release);
    }

    /// Whether the other thread answers a message in time.
    fn answered(&self, message: u64) -> bool {
        spin(PATIENCE, || self.answer.0.load(Acquire) == message)
    }

    /// The loop of the other thread: answers each message, and parks if the message has the bit.
    fn answer(&self) {
        let mut seen = 0;
        loop {
            let next = || self.message.0.load(Acquire);
            if !spin(PATIENCE, || next() != seen) {
                // The first thread waits for a CPU, as on a machine with other load.
                std::thread::park_timeout(PATIENCE);
                continue;
            }
            seen = next();
            if seen == STOP {
                return;
            }
            self.answer.0.store(seen, Release);
            if seen & PARK != 0 {
                while next() == seen {
                    std::thread::park();
                }
            }
        }
    }
}

/// The nanoseconds from the call that wakes a parked thread to the thread's answer.
fn wake_latency(echo: &Echo, other: &Thread) -> Option<usize> {
    let mut times = [0; WAKES];
    for (i, time) in times.iter_mut().enumerate() {
        let message = 2 * i as u64 + 1;
        echo.send(message | PARK);
        echo.answered(message | PARK).then_some(())?;
        // The other thread is about to park. Do not sleep: if this thread slept, its CPU would slow
        // down.
        spin(Duration::from_micros(20), || false);
        let start = Instant::now();
        echo.send(message + 1);
        other.unpark();
        echo.answered(message + 1).then_some(())?;
        *time = start.elapsed().as_nanos() as usize;
    }
    times.sort_unstable();
    Some(times[1].max(1))
}

/// The time in nanoseconds from a store to its arrival at a spinning thread: half of the mean round
/// trip.
fn handover(echo: &Echo) -> Option<usize> {
    let mut fastest = u64::MAX;
    for round in 0..ROUNDS {
        let start = Instant::now();
        for i in 0..ANSWERS {
            let message = 1000 + round * ANSWERS + i;
            echo.send(message);
            echo.answered(message).then_some(())?;
        }
        fastest = fastest.min(start.elapsed().as_nanos() as u64);
    }
    Some((fastest / (2 * ANSWERS)).max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_measured_or_left_out() {
        let machine = Machine::read();
        // On one processor, or if other load keeps the second thread from a CPU, nothing is
        // measured.
        if let Some(measured) = measure(&machine) {
            assert!(measured.wake_ns > 0 && measured.handover_ns > 0, "{measured:?}");
            assert_eq!(measured.l2_bytes, machine.l2_bytes);
        }
    }

    #[test]
    fn a_calibration_is_read_back_only_on_the_same_machine() {
        let machine = Machine { wake_ns: 12_345, handover_ns: 67, ..Machine::default() };
        let plain = Machine::default();
        assert_eq!(parse(&print(&machine), &plain), Some(machine.clone()));
        let other = Machine { l2_bytes: 3 << 20, ..Machine::default() };
        assert_eq!(parse(&print(&machine), &other), None);
        let text = print(&machine);
        for cut in 0..text.len() - 1 {
            // A number that has lost digits is still a valid number.
            if let Some(read) = parse(&text[..cut], &plain) {
                assert_eq!(read.wake_ns, 12_345);
            }
        }
        for bad in ["wake_ns 0", "wake_ns -1", "wake_ns", "wake_ns 3975371", "other 3"] {
            assert_eq!(parse(&text.replace("wake_ns 12345", bad), &plain), None, "{bad}");
        }
    }

    #[test]
    fn a_file_is_written_whole_and_found_again() {
        let folder = std::env::temp_dir().join(format!("girih-calibration-{}", std::process::id()));
        let file = private::directory(&folder.join("inner")).unwrap().join("calibration");
        let machine = Machine { wake_ns: 1, handover_ns: 2, ..Machine::default() };
        assert_eq!(load(&file, &machine), None);
        store(&file, &machine);
        assert_eq!(load(&file, &Machine::default()), Some(machine));
        let names = std::fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(names, 1, "no part of a file is left");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
