//! Copies of host data to a device and back, as work of a stream.
//!
//! The target memory of an upload is new, so no queued work uses it. The copy needs a queue, so
//! that it respects the device's concurrency and appears in traces, but it need not wait for the
//! stream's work. If the stream is idle, the copy runs on the stream, on this thread, from the
//! caller's memory. Else it is an operation of the executor's stream for copies.

use crate::queue::host_bytes;
use crate::scheduler::runs_submission;
use crate::{
    Completion, Error, HostBytes, HostMemoryPool, Operands, Operation, PlanExecutor, Result,
    Stream, Value,
};
use smallvec::SmallVec;
use std::slice;
use std::sync::Arc;

impl PlanExecutor {
    /// The size of a part in [`PlanExecutor::upload_staged`], in bytes; a multiple of every dtype's
    /// size.
    pub const STAGING_BYTES: usize = 256 << 10;

    /// Copies host bytes to a new block, as a copy of a stream of this device. Waits for the copy,
    /// but not for earlier work of the stream.
    ///
    /// Errors: [`Error::OutOfMemory`]; [`Error::HostMemory`]; the failure of the copy.
    pub fn upload_on(&self, stream: &Stream, bytes: &[u8]) -> Result<Value> {
        let value = Value::new(self.device.allocator().allocate(bytes.len())?);
        self.copy_in(stream, bytes, (&value, 0))?;
        Ok(value)
    }

    /// [`PlanExecutor::upload_on`] with the default stream of this thread.
    pub fn upload(&self, bytes: &[u8]) -> Result<Value> {
        self.upload_on(&self.thread_stream(), bytes)
    }

    /// As [`PlanExecutor::upload_on`], for data that is produced part by part: `read` gets the
    /// offset of each part in the `size` bytes, in ascending order, and a staging buffer to fill.
    /// Each part but the last has [`PlanExecutor::STAGING_BYTES`] bytes.
    ///
    /// Errors: those of [`PlanExecutor::upload_on`]; [`Error::OutOfMemory`] is returned before the
    /// first call of `read`.
    pub fn upload_staged(
        &self,
        stream: &Stream,
        size: usize,
        mut read: impl FnMut(usize, &mut [u8]),
    ) -> Result<Value> {
        let value = Value::new(self.device.allocator().allocate(size)?);
        if size == 0 {
            return Ok(value);
        }
        let mut part = self.staging()?.acquire()?;
        for at in (0..size).step_by(PlanExecutor::STAGING_BYTES) {
            let part = &mut part[..PlanExecutor::STAGING_BYTES.min(size - at)];
            read(at, part);
            self.copy_in(stream, part, (&value, at))?;
        }
        Ok(value)
    }

    /// Starts to copy the first `size` bytes of a value of another device to a new block of this
    /// executor's device. `from`, a stream of that other device, reads the value after its earlier
    /// work. The copy goes through staging buffers in host memory: a part is read while the
    /// previous one is written, and no thread waits. Work that depends on the completion may use
    /// the new value.
    ///
    /// Errors: [`Error::OutOfMemory`]; [`Error::HostMemory`]; [`Error::InvalidHandle`] for a value
    /// with fewer bytes.
    pub fn upload_from(
        &self,
        from: &Stream,
        value: &Value,
        size: usize,
    ) -> Result<(Value, Arc<Completion>)> {
        /// The number of staging buffers, and so of parts in flight.
        const DEPTH: usize = 2;
        let made = Value::new(self.device.allocator().allocate(size)?);
        value.check_size(size, from.queue().device().as_ref())?;
        let slots = 0..size.div_ceil(PlanExecutor::STAGING_BYTES).min(DEPTH);
        let slots = slots.map(|_| host_bytes(size.min(PlanExecutor::STAGING_BYTES)));
        let slots = slots.collect::<Result<SmallVec<[HostBytes; DEPTH]>>>()?;
        let mut written: SmallVec<[Arc<Completion>; DEPTH]> = SmallVec::new();
        for (number, at) in (0..size).step_by(PlanExecutor::STAGING_BYTES).enumerate() {
            let part = PlanExecutor::STAGING_BYTES.min(size - at);
            // The last part may be shorter than the staging buffers, so it gets its own.
            let slot = match part == PlanExecutor::STAGING_BYTES.min(size) {
                true => slots[number % DEPTH].clone(),
                false => host_bytes(part)?,
            };
            let operands = (value.skip(at), made.skip(at), [slot]);
            let mut read = from.batch().awaited();
            let source = slice::from_ref(&operands.0);
            read.add(Operation::copy_from_device(), Operands::Tensors(source, &operands.2))?;
            let before = number.checked_sub(DEPTH).map(|earlier| written[earlier].clone());
            let read = read.submit(from, before);
            let mut write = self.copies().batch().awaited();
            let target = slice::from_ref(&operands.1);
            write.add(Operation::copy_from_slot(), Operands::Tensors(target, &operands.2))?;
            // Depend on the previous part, so that any failure reaches the last completion.
            let after = written.last().cloned().into_iter().chain([read]);
            written.push(write.submit(self.copies(), after));
        }
        let done = written.pop().unwrap_or_else(|| {
            let nothing = Completion::pending();
            nothing.finish(Ok(()));
            nothing
        });
        Ok((made, done))
    }

    /// The stream for copies that should not wait for the work of other streams.
    fn copies(&self) -> &Stream {
        self.copies.get_or_init(|| self.stream().helper())
    }

    /// The pool of staging buffers.
    fn staging(&self) -> Result<&HostMemoryPool> {
        if let Some(pool) = self.staging.get() {
            return Ok(pool);
        }
        let pool = HostMemoryPool::new(PlanExecutor::STAGING_BYTES, 0)?;
        Ok(self.staging.get_or_init(|| pool))
    }

    /// Copies the first `size` bytes of a value to the host, on the default stream of this thread.
    pub fn download(&self, value: &Value, size: usize) -> Result<Box<[u8]>> {
        self.thread_stream().download(value, size)
    }

    /// Copies bytes to an offset of a new block.
    fn copy_in(&self, stream: &Stream, bytes: &[u8], (value, at): (&Value, usize)) -> Result<()> {
        if runs_submission() {
            // A host function that the device waits for makes this copy, so the copy is part of
            // that function's work.
            return stream.copy_inside(bytes, value, at);
        }
        let idle = |stream: &Stream| stream.copy_idle(bytes, value, at);
        if let Some(outcome) = idle(stream).or_else(|| idle(self.copies())) {
            return outcome;
        }
        // The device is busy: enqueue a copy of the bytes.
        let mut source = Vec::new();
        let requested = bytes.len();
        source.try_reserve_exact(requested).map_err(|_| Error::HostMemory { requested })?;
        source.extend_from_slice(bytes);
        let target = value.skip(at);
        let operands = Operands::Tensors(slice::from_ref(&target), &[]);
        self.copies().run_once(Operation::copy_to_device(source.into()), operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MockDevice, NoBackend};
    use crate::trace::{Recording, SpanKind};
    use crate::{HostStep, Step};
    use std::sync::mpsc::{self, RecvTimeoutError::Timeout, Sender};
    use std::time::Duration;

    fn executor(concurrency: usize) -> Arc<PlanExecutor> {
        let device = MockDevice::concurrent(Duration::ZERO, concurrency);
        Arc::new(PlanExecutor::new(device, Arc::new(NoBackend), None))
    }

    fn enqueue_work(stream: &Stream, work: impl Fn() + Send + Sync + 'static) -> Arc<Completion> {
        let step = HostStep::new("work", move |_| {
            work();
            Ok(())
        });
        let operation = Operation::steps("work", [Step::Host(step)]);
        stream.launch(&operation, Operands::Tensors(&[], &[])).unwrap()
    }

    /// Keeps a stream busy until the sender is dropped; returns once the stream is busy.
    fn busy(stream: &Stream) -> (Sender<()>, Arc<Completion>) {
        let (sender, receiver) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let receiver = std::sync::Mutex::new(receiver);
        let done = enqueue_work(stream, move || {
            begun.send(()).unwrap();
            let _ = receiver.lock().unwrap().recv();
        });
        has_begun.recv().unwrap();
        (sender, done)
    }

    /// The stream and the size in bytes of each copy to this executor's device.
    fn copies(executor: &PlanExecutor, recording: &Recording) -> Vec<(Option<usize>, usize)> {
        let own = |s: &crate::trace::Span| {
            s.device == executor.device().id() && s.kind == SpanKind::CopyToDevice
        };
        recording.spans().into_iter().filter(own).map(|s| (s.stream, s.bytes)).collect()
    }

    #[test]
    fn uploads_use_the_copy_queue_while_the_stream_is_busy() {
        let executor = executor(2);
        let recording = Recording::new();
        let stream = executor.thread_stream();
        let other = Stream::new(stream.queue().scheduler());
        let value = executor.upload_on(&other, &[1, 2, 3]).unwrap();
        assert_eq!(copies(&executor, &recording), [(Some(other.queue().index()), 3)]);
        assert_eq!(*executor.download(&value, 3).unwrap(), [1, 2, 3]);
        // While that stream is busy, the copy does not wait for it.
        let (hold, done) = busy(&other);
        let value = executor.upload_on(&other, &[4, 5]).unwrap();
        assert_eq!(done.poll(), None);
        let &[_, (Some(index), 2)] = &copies(&executor, &recording)[..] else { panic!() };
        assert!(![stream.queue().index(), other.queue().index()].contains(&index));
        drop(hold);
        assert_eq!(*executor.download(&value, 2).unwrap(), [4, 5]);
        assert_eq!(executor.upload(&[]).unwrap().size_bytes(), 0);
    }

    #[test]
    fn a_serial_device_that_is_busy_has_the_copy_in_its_turn() {
        let executor = executor(1);
        let (hold, _) = busy(&executor.thread_stream());
        let (sender, receiver) = mpsc::channel();
        let uploading = executor.clone();
        let thread = std::thread::spawn(move || {
            let value = uploading.upload(&[7; 300]).unwrap();
            sender.send(value).unwrap();
        });
        let early = receiver.recv_timeout(Duration::from_millis(50));
        assert_eq!(early.map(|value| value.size_bytes()), Err(Timeout));
        drop(hold);
        let value = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(*executor.download(&value, 300).unwrap(), [7; 300]);
        thread.join().unwrap();
    }

    #[test]
    fn a_host_function_may_upload_to_the_waiting_device() {
        let executor = executor(1);
        let (sender, receiver) = mpsc::channel();
        let uploading = executor.clone();
        let sender = std::sync::Mutex::new(sender);
        let done = enqueue_work(&executor.thread_stream(), move || {
            let value = uploading.upload(&[9; 4]).unwrap();
            sender.lock().unwrap().send(value).unwrap();
        });
        let value = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        done.wait().unwrap();
        assert_eq!(*executor.download(&value, 4).unwrap(), [9; 4]);
    }

    #[test]
    fn staged_uploads_arrive_in_order_and_reuse_their_block() {
        let executor = executor(1);
        let (size, stream) = (20_000, executor.thread_stream());
        let read = |at: usize, part: &mut [u8]| {
            part.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((at + i) % 251) as u8);
        };
        let value = executor.upload_staged(&stream, size, read).unwrap();
        let expected: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        assert_eq!(*executor.download(&value, size).unwrap(), *expected);
        let pool = executor.staging().unwrap();
        assert_eq!((pool.total_blocks(), pool.available_blocks()), (1, 1), "one part at a time");
        executor.upload_staged(&stream, size, read).unwrap();
        assert_eq!(pool.total_blocks(), 1, "the next upload takes the same block");
        let error = executor.upload_staged(&stream, 1 << 20, |_, _| panic!("nothing is read"));
        assert!(matches!(error, Err(Error::OutOfMemory { .. })));
    }

    #[test]
    fn values_cross_devices_by_queues_alone() {
        let (from, to) = (executor(2), executor(1));
        for size in [0, 1, 5_000] {
            let bytes: Vec<u8> = (0..size).map(|i| (i % 253) as u8).collect();
            let value = from.upload(&bytes).unwrap();
            // The call does not wait for either device.
            let (hold, held) = busy(&to.thread_stream());
            let (copied, done) = to.upload_from(&from.thread_stream(), &value, size).unwrap();
            drop(value);
            assert!(held.poll().is_none() && (size == 0 || done.poll().is_none()));
            drop(hold);
            done.wait().unwrap();
            assert_eq!(*to.download(&copied, size).unwrap(), *bytes);
        }
        let value = from.upload(&[1]).unwrap();
        let error = to.upload_from(&from.thread_stream(), &value, 2).err();
        assert!(matches!(error, Some(Error::InvalidHandle { .. })));
    }

    #[test]
    fn large_values_cross_in_parts() {
        let device = |bytes| MockDevice::with_memory(Duration::ZERO, 1, bytes);
        let executor = |device| Arc::new(PlanExecutor::new(device, Arc::new(NoBackend), None));
        let (from, to) = (executor(device(4 << 20)), executor(device(4 << 20)));
        let size = 5 * PlanExecutor::STAGING_BYTES + 1000;
        let bytes: Vec<u8> = (0..size).map(|i| (i % 253) as u8).collect();
        let value = from.upload(&bytes).unwrap();
        let recording = Recording::new();
        let (copied, done) = to.upload_from(&from.thread_stream(), &value, size).unwrap();
        done.wait().unwrap();
        assert_eq!(copies(&to, &recording).len(), 6);
        assert_eq!(*to.download(&copied, size).unwrap(), *bytes);
    }
}
