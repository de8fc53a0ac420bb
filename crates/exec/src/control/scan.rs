//! Scans: the addresses of operands and results in each iteration, and the iterations.

use super::{Bindings, ExecError, Run, StridedIterations};

/// The functions that are unsafe are so for the reason that those of `control.rs` are.
impl Run<'_, '_> {
    /// Runs a scan of `length` iterations, the last one first if `reverse` is true.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    pub unsafe fn scan(&mut self, length: usize, reverse: bool) -> Result<(), ExecError> {
        let scan = Scan::new(self, length, reverse);
        // SAFETY: the caller's promise; the verifier has checked that parts lie within operands and
        // stacks.
        unsafe {
            self.start(length > 0 && scan.second(0))?;
            self.start_histories(&scan)?;
            let mut t = 0;
            while t < length {
                if t == 1 && length > 4 && self.driver.parts.programs[0].copies.is_empty() {
                    self.strided_iterations(&scan)?;
                    t = length - 1;
                }
                (self.hooks.proceed)()?;
                self.bind(&scan, t);
                self.program(0)?;
                t += 1;
            }
            if length > 0 {
                self.advance();
            }
            self.finish()
        }
    }

    /// Copies carries whose values are all stored (histories) to the first element of their
    /// history.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    unsafe fn start_histories(&mut self, scan: &Scan) -> Result<(), ExecError> {
        for (carry, history) in scan.histories.iter().enumerate() {
            if let (Some(history), 1..) = (history, scan.length) {
                let bytes = self.driver.taken[carry];
                let first = history.wrapping_add(scan.position(0) * bytes);
                // SAFETY: histories have an element for each iteration's carry.
                unsafe { self.copy(self.operands[carry], first, bytes, carry)? };
                self.operands[carry] = first;
            }
        }
        Ok(())
    }

    /// The address to which iteration `t` writes a carry.
    fn carried(&self, scan: &Scan, carry: usize, t: usize) -> *mut u8 {
        match scan.histories[carry] {
            Some(history) if t + 1 < scan.length => {
                history.wrapping_add(scan.position(t + 1) * self.driver.taken[carry])
            }
            _ => self.slot(carry, scan.second(t)),
        }
    }

    /// Sets the addresses of the operands and results of iteration `t`.
    fn bind(&mut self, scan: &Scan, t: usize) {
        let driver = self.driver;
        let (carries, at) = (driver.control.carries, scan.position(t));
        for (i, origin) in scan.origins.iter().enumerate() {
            self.operands[carries + i] = origin.wrapping_add(at * driver.taken[carries + i]);
        }
        for carry in 0..carries {
            if t > 0 && !driver.fixed[carry] {
                self.operands[carry] = self.carried(scan, carry, t - 1);
            }
            self.results[carry] = self.carried(scan, carry, t);
        }
        let sizes = &driver.parts.programs[0].result_bytes;
        for (result, stack) in scan.stacks.iter().enumerate().skip(carries) {
            self.results[result] = match stack.is_null() {
                true => *stack,
                false => stack.wrapping_add(at * sizes[result]),
            };
        }
    }

    /// Checks the addresses of the first and of the last two of these iterations, in checked mode:
    /// those in between lie between them.
    fn check_iterations(
        &mut self,
        tables: [&[*mut u8]; 2],
        distances: &[isize],
        count: usize,
    ) -> Result<(), ExecError> {
        if !self.bindings.is_checked() {
            return Ok(());
        }
        for (parity, table) in tables.into_iter().enumerate() {
            let times = (count - 1 - parity) as isize / 2;
            let moved =
                |(address, distance): (&*mut u8, &isize)| address.wrapping_offset(distance * times);
            let last: Vec<*mut u8> = table.iter().zip(distances).map(moved).collect();
            self.fill_bounds(0, &last)?;
            self.fill_bounds(0, table)?;
        }
        Ok(())
    }

    /// Runs all iterations except the first and the last; there are at least five in total.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    unsafe fn strided_iterations(&mut self, scan: &Scan) -> Result<(), ExecError> {
        let mut table_of = |t| {
            self.bind(scan, t);
            self.fill_table(0);
            self.table.clone()
        };
        let (mut now, mut next, third) = (table_of(1), table_of(2), table_of(3));
        let distance = |(first, third): (&*mut u8, &*mut u8)| {
            (*third as usize).wrapping_sub(*first as usize) as isize
        };
        let distances: Vec<isize> = now.iter().zip(&third).map(distance).collect();
        let count = scan.length - 2;
        if self.driver.control.programs[0].kernels.len() == 1 {
            self.check_iterations([&now, &next], &distances, count)?;
            let bounds = self.bindings.is_checked().then_some(&self.bounds[..]);
            let bindings = Bindings { bounds, ..*self.bindings };
            let tables = [&mut now[..], &mut next[..]];
            let mut strided = StridedIterations { tables, distances: &distances, count };
            if let Some(ran) = (self.hooks.strided)(&mut strided, &bindings) {
                return ran;
            }
        }
        for _ in 0..count {
            (self.hooks.proceed)()?;
            // SAFETY: the caller's promise; the tables have the addresses of this iteration.
            unsafe { self.kernels(0, &now)? };
            for (address, distance) in now.iter_mut().zip(&distances) {
                *address = address.wrapping_offset(*distance);
            }
            std::mem::swap(&mut now, &mut next);
        }
        Ok(())
    }
}

/// The addresses of a scan that are the same in all iterations.
struct Scan {
    length: usize,
    reverse: bool,
    /// The operands of the slices.
    origins: Vec<*mut u8>,
    /// The results; the results of carries are not used.
    stacks: Vec<*mut u8>,
    /// For each carry, its history, if all its values are stored.
    histories: Vec<Option<*mut u8>>,
}

impl Scan {
    fn new(run: &Run<'_, '_>, length: usize, reverse: bool) -> Scan {
        let control = &run.driver.control;
        let (carries, slices) = (control.carries, control.slices);
        let history = |c: usize| control.history(c).map(|b| run.bindings.buffers[b.0 as usize]);
        Scan {
            length,
            reverse,
            origins: run.operands[carries..carries + slices].to_vec(),
            stacks: (0..run.results.len()).map(|r| run.result(r)).collect(),
            histories: (0..carries).map(history).collect(),
        }
    }

    /// The index of iteration `t` in slices and stacks.
    fn position(&self, t: usize) -> usize {
        if self.reverse { self.length - 1 - t } else { t }
    }

    /// Whether iteration `t` writes the second buffer of each carry. The last iteration writes the
    /// first buffer, which is the result's buffer.
    fn second(&self, t: usize) -> bool {
        (self.length - 1 - t) % 2 == 1
    }
}
