//! Explanations as text.

use super::{Explanation, KernelInfo};
use girih_ir::Traffic;
use girih_runtime::report::BufferReport;
use girih_runtime::{Lookup, Placement};
use std::fmt;

/// A count of bytes or operations, printed with an SI prefix.
struct Amount(u64, &'static str);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Amount(count, unit) = *self;
        let (mut scaled, mut prefix) = (count as f64, "");
        for next in ["k", "M", "G", "T"] {
            // Use the next prefix if the number would be printed as 1000.0.
            if scaled < 999.95 {
                break;
            }
            (scaled, prefix) = (scaled / 1000.0, next);
        }
        match prefix {
            "" => write!(f, "{count} {unit}"),
            _ => write!(f, "{scaled:.1} {prefix}{unit}"),
        }
    }
}

impl Explanation {
    /// The total memory traffic and operations of all kernels.
    pub fn traffic(&self) -> Traffic {
        self.kernels.iter().fold(Traffic::default(), |sum, k| sum + k.traffic)
    }
}

fn indented(f: &mut fmt::Formatter<'_>, text: &str, by: usize) -> fmt::Result {
    for line in text.trim_end().lines() {
        writeln!(f, "{:by$}{line}", "")?;
    }
    Ok(())
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.passes(f)?;
        self.kernels_text(f)?;
        self.refusals_text(f)?;
        self.bottlenecks_text(f)?;
        writeln!(f, "\nOperations")?;
        for (i, operation) in self.operations.iter().enumerate() {
            writeln!(f, "  {i} {}: {}", operation.name, operation.steps.join(", "))?;
        }
        self.memory_text(f)?;
        writeln!(f, "\nCache")?;
        match &self.cache {
            Lookup::Hit => write!(f, "  hit: the program is compiled already"),
            Lookup::New => write!(f, "  miss: no similar program is cached"),
            Lookup::Differs(fields) => {
                write!(f, "  miss: this differs from the most similar program cached")?;
                fields.iter().try_for_each(|field| write!(f, "\n    {field}"))
            }
        }
    }
}

impl Explanation {
    fn passes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Recorded: {}", count(self.graph.len(), "node"))?;
        for (id, node) in self.graph.nodes() {
            let line =
                self.lines[id.index()].as_ref().map_or(String::new(), |l| format!(" at {l}"));
            writeln!(f, "  {id} {} -> {}{line}", node.op.name(), node.spec)?;
        }
        writeln!(f, "\nPasses: {}", count(self.iterations, "round"))?;
        for stage in self.stages.iter().skip(1) {
            let nodes = count(stage.num_nodes, "node");
            writeln!(f, "  round {} {}: {nodes}", stage.iteration + 1, stage.pass)?;
        }
        indented(f, &self.optimized.to_string(), 2)?;
        if !self.unused_arguments.is_empty() {
            let unused: Vec<String> = self.unused_arguments.iter().map(usize::to_string).collect();
            writeln!(f, "  arguments not needed: {}", unused.join(", "))?;
        }
        Ok(())
    }

    fn kernels_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nKernels: {}, {}", self.kernels.len(), traffic_text(self.traffic()))?;
        for (i, kernel) in self.kernels.iter().enumerate() {
            writeln!(f, "  {i} {}: {}", kernel.name, traffic_text(kernel.traffic))?;
            writeln!(f, "    computes {}", ops_text(kernel))?;
            if !kernel.lines.is_empty() {
                writeln!(f, "    from {}", kernel.lines.join(", "))?;
            }
            indented(f, &kernel.text, 4)?;
            if !self.asm {
                continue;
            }
            for (number, code) in kernel.assembly().iter().enumerate() {
                writeln!(
                    f,
                    "    machine code {number}: {}",
                    Amount(kernel.code[number].len() as u64, "B")
                )?;
                indented(f, code, 6)?;
            }
            if kernel.code.is_empty() {
                writeln!(f, "    no machine code of its own")?;
            }
        }
        Ok(())
    }

    fn refusals_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nNot fused: {}", self.refusals.len())?;
        for refusal in &self.refusals {
            let line = refusal.line.as_ref().map_or(String::new(), |l| format!(" ({l})"));
            writeln!(f, "  {}{line}: {}", refusal.code, refusal.sentence)?;
        }
        Ok(())
    }

    fn bottlenecks_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nBottlenecks, by estimate: {}", self.bottlenecks.len())?;
        for found in &self.bottlenecks {
            let lines = &self.kernels[found.kernel].lines;
            let from =
                if lines.is_empty() { String::new() } else { format!(" ({})", lines.join(", ")) };
            let (code, kernel, time) = (found.code, found.kernel, time_text(found.lost_ns));
            writeln!(f, "  {code}, kernel {kernel}{from}, {time}: {}", found.sentence)?;
        }
        Ok(())
    }

    fn memory_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.memory;
        let bytes = |n: usize| Amount(n as u64, "B");
        writeln!(f, "\nMemory: {} at most", bytes(m.peak_bytes))?;
        let (arguments, outputs) = (bytes(m.argument_bytes), bytes(m.output_bytes));
        let (shared, alone) = (bytes(m.temporary_bytes), bytes(m.unshared_temporary_bytes));
        writeln!(
            f,
            "  arguments {arguments}, results {outputs}, temporaries {shared} ({alone} without \
             reuse)"
        )?;
        for (i, buffer) in m.buffers.iter().enumerate() {
            writeln!(f, "  b{i} {}", buffer_text(buffer))?;
        }
        Ok(())
    }
}

fn time_text(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn traffic_text(traffic: Traffic) -> String {
    let Traffic { bytes_read, bytes_written, flops } = traffic;
    let (read, written) = (Amount(bytes_read, "B"), Amount(bytes_written, "B"));
    format!("reads {read}, writes {written}, {}", Amount(flops, "FLOP"))
}

/// The ops of a kernel as text: `%3 matmul, %4 add (of %2 linear)`.
fn ops_text(kernel: &KernelInfo) -> String {
    let text = |op: &super::OpInfo| match op.recorded {
        Some((id, name)) if name != op.op => format!("{} {} (of {id} {name})", op.node, op.op),
        _ => format!("{} {}", op.node, op.op),
    };
    kernel.ops.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn buffer_text(buffer: &BufferReport) -> String {
    let place = match buffer.placement {
        Placement::Argument(position) => format!("argument {position}"),
        Placement::Output => "result".into(),
        Placement::Temporary(at) => format!("temporary at {at}"),
        Placement::Unused => "unused".into(),
    };
    let mut text =
        format!("{}, {}: {place}", buffer.contents, Amount(buffer.size_bytes as u64, "B"));
    if let Some(kernel) = buffer.written_by {
        text += &format!(", written by kernel {kernel}");
    }
    if let Some(kernel) = buffer.last_read_by {
        text += &format!(", last read by kernel {kernel}");
    }
    if !buffer.reuses.is_empty() {
        let reused: Vec<String> = buffer.reuses.iter().map(|b| format!("b{b}")).collect();
        text += &format!(", in place of {}", reused.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_keep_four_digits() {
        let shown =
            [0, 999, 1000, 999_949, 999_950, 12_345_678].map(|n| Amount(n, "B").to_string());
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "12.3 MB"]);
    }
}
