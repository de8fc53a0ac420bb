//! Streams and events: the order of evaluations, and synchronisation with them.

use crate::device::Device;
use crate::error::Result;
use crate::executor::DeviceExecutor;
use crate::{background, devices, nested};
use std::fmt;
use std::sync::Arc;

/// An ordered sequence of evaluations on a device. Evaluations of one stream run in order;
/// evaluations of different streams may run concurrently. The value is a reference-counted handle.
///
/// A tensor that is computed on one stream may be used on another: the evaluation there begins when
/// the tensor has its value.
#[derive(Clone)]
pub struct Stream(Device, Arc<girih_runtime::Stream>);

impl Stream {
    /// A new stream of a device. Where the device does not run all work at once, work of
    /// streams with lower numbers goes first, as in CUDA: also between two kernels of a program of
    /// another stream.
    ///
    /// Errors: [`crate::Error::Evaluation`] if the environment variables do not allow the device to
    /// be set up.
    pub fn on(device: Device, priority: i32) -> Result<Stream> {
        let executor = devices::executor(device)?.runtime();
        let scheduler = executor.stream().queue().scheduler();
        let stream = girih_runtime::Stream::with_priority(scheduler, priority);
        Ok(Stream(device, Arc::new(stream)))
    }

    /// The default stream of a device, number 0. Programs of the first thread that uses the device
    /// are submitted to it if no other stream is set.
    ///
    /// Errors: as [`Stream::on`].
    pub fn default_of(device: Device) -> Result<Stream> {
        Ok(Stream(device, devices::executor(device)?.runtime().stream().clone()))
    }

    /// The stream of a device to which this thread's programs are submitted if no other stream is
    /// set: the device's default stream for the first thread that uses the device, and a stream of
    /// its own for each other thread, so that threads do not wait for each other's programs, as with
    /// CUDA's per-thread default streams.
    ///
    /// Errors: as [`Stream::on`].
    pub fn of_thread(device: Device) -> Result<Stream> {
        Ok(Stream(device, devices::executor(device)?.runtime().thread_stream()))
    }

    /// The device that runs the stream's programs.
    pub fn device(&self) -> Device {
        self.0
    }

    /// The stream of the runtime.
    pub fn runtime(&self) -> &Arc<girih_runtime::Stream> {
        &self.1
    }

    /// The number of the stream, unique among the live streams of the device.
    pub fn index(&self) -> usize {
        self.1.queue().index()
    }

    /// Whether all work submitted so far is done.
    pub fn query(&self) -> bool {
        !background::is_busy() && self.1.queue().query()
    }

    /// Waits until all work submitted so far is done, including work that is still to be compiled.
    ///
    /// Errors: [`crate::Error::Evaluation`], the first failure since the last call that was not
    /// reported elsewhere. Its tensors stay lazy and may be evaluated again.
    /// [`crate::Error::InvalidArgument`] inside of a callback or a pass, which the work waits for.
    pub fn synchronize(&self) -> Result<()> {
        nested::check("synchronize")?;
        background::wait()?;
        self.1.synchronize().map_err(Into::into)
    }

    /// Records `event`, which is reached when all work submitted so far is done.
    pub fn record(&self, event: &Event) {
        let (stream, record) = (self.1.clone(), event.0.arm());
        background::in_order(move || stream.queue().enqueue_record(record));
    }

    /// Makes work submitted from now on wait for the last record of `event` so far. An event that
    /// was never recorded has no effect.
    pub fn wait(&self, event: &Event) {
        if let Some(record) = event.0.recorded() {
            let stream = self.1.clone();
            background::in_order(move || stream.queue().enqueue_wait(record));
        }
    }

    /// Makes work submitted from now on wait for all work submitted to `other` so far.
    pub fn wait_stream(&self, other: &Stream) {
        let event = Event::new();
        other.record(&event);
        self.wait(&event);
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.1, &other.1)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream(device={}, index={})", self.device(), self.index())
    }
}

/// A point in a stream for which other streams and the host can wait. The value is a
/// reference-counted handle.
#[derive(Clone, Debug, Default)]
pub struct Event(girih_runtime::Event);

impl Event {
    /// An event that has not been recorded.
    pub fn new() -> Event {
        Event::default()
    }

    /// Whether the last record has been reached; true for an event that was never recorded.
    pub fn query(&self) -> bool {
        self.0.query()
    }

    /// Waits until the last record has been reached.
    ///
    /// Errors: if the user of this thread interrupts the wait; [`crate::Error::InvalidArgument`]
    /// inside of a callback or a pass.
    pub fn synchronize(&self) -> Result<()> {
        nested::check("synchronize")?;
        self.0.synchronize().map_err(Into::into)
    }

    /// The time in milliseconds, by the device's clock, between the last records of this event and
    /// of `end`.
    ///
    /// Errors: [`girih_runtime::Error::EventNotReached`] if one of them has not been reached.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64> {
        Ok(self.0.elapsed_seconds(&end.0)? * 1e3)
    }
}

/// Waits until all work submitted so far to any stream of a device is done; `None` means all
/// devices.
///
/// Errors: as [`Stream::synchronize`], for one of the failed streams; the other streams keep their
/// failures.
pub fn synchronize(device: Option<Device>) -> Result<()> {
    nested::check("synchronize")?;
    background::wait()?;
    let chosen =
        |executor: &&DeviceExecutor| device.is_none_or(|device| device == executor.device());
    for executor in devices::running().filter(chosen) {
        executor.runtime().stream().queue().scheduler().synchronize_all()?;
    }
    Ok(())
}
