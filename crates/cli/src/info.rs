//! `girih info` and `girih cache`: the properties of this installation.

use crate::{Answer, CacheAction};
use girih::runtime::DiskStats;
use girih::{CacheState, Calibration, Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::SystemTime;

/// The processor features of this machine that kernels can use.
fn features() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! detect {
            ($($name:tt),*) => { $(if std::is_x86_feature_detected!($name) { found.push($name); })* };
        }
        detect!(
            "sse4.2",
            "avx",
            "avx2",
            "fma",
            "f16c",
            "avx512f",
            "avx512bw",
            "avx512vnni",
            "avx512bf16"
        );
    }
    #[cfg(target_arch = "aarch64")]
    {
        macro_rules! detect {
            ($($name:tt),*) => {
                $(if std::arch::is_aarch64_feature_detected!($name) { found.push($name); })*
            };
        }
        detect!("neon", "fp16", "dotprod", "bf16", "i8mm", "sve");
    }
    found
}

/// Girih's non-empty environment variables, sorted by name. Invalid Unicode is replaced.
fn environment() -> Vec<(String, String)> {
    let shown = |(name, value): (OsString, OsString)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    };
    let set = std::env::vars_os().map(shown);
    let mut set: Vec<(String, String)> =
        set.filter(|(name, value)| name.starts_with("GIRIH_") && !value.is_empty()).collect();
    set.sort();
    set
}

/// Version, processor and its calibration, devices, caches, and the environment variables that are
/// set.
pub fn info() -> Result<Answer> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = girih::num_threads()?;
    let isa = girih::instruction_set();
    let environment = environment();
    let mut set: Vec<String> =
        environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if set.is_empty() {
        set.push("no variable of Girih's is set".into());
    }
    let stats = girih::cache_stats()?;
    let dtypes: Vec<&str> = girih::DType::ALL.iter().map(|d| d.name()).collect();
    let ops = girih::ir::OpCode::ALL.len();
    let version = env!("CARGO_PKG_VERSION");
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let cache = cache(CacheAction::Stats)?.json;
    let kept = match cache["directory"].as_str() {
        Some(at) => format!("{} programs, {} bytes, in {at}", cache["programs"], cache["bytes"]),
        None => format!("off: {}", cache["off"].as_str().unwrap_or_default()),
    };
    let Calibration { machine, parameters, file } = girih::calibration()?;
    let parameter = |(name, value): &(&str, usize)| format!("{name}={value}");
    let tuning: Vec<String> = parameters.iter().map(parameter).collect();
    let file = file.map_or("nowhere".into(), |file| file.display().to_string());
    let below = |lines: &[String]| lines.join("\n           ");
    let kilobytes = [machine.l1_bytes, machine.l2_bytes, machine.l3_bytes].map(|bytes| bytes >> 10);
    let [l1, l2, l3] = kilobytes;
    let (wake, handover, memory) = (machine.wake_ns, machine.handover_ns, machine.memory);
    let lines = [
        ("platform", format!("{os} {arch}")),
        ("processor", format!("{processors} CPUs, {}", features().join(" "))),
        ("caches", format!("{l1} KB L1, {l2} KB L2, {l3} KB L3")),
        ("latencies", format!("{wake} ns to wake a thread, {handover} ns to hand work over")),
        (
            "memory",
            format!(
                "{} ns to load; a thread loads {}, stores {} and streams {} MB/s",
                memory.latency_ns, memory.read_mbps, memory.write_mbps, memory.stream_mbps
            ),
        ),
        ("measured", format!("once, stored in {file}")),
        ("tuning", below(&tuning)),
        ("kernels", format!("{isa}, {threads} threads")),
        ("devices", format!("cpu ({} bytes in use)", stats.memory_bytes)),
        ("dtypes", dtypes.join(" ")),
        ("ops", ops.to_string()),
        ("cache", kept),
        ("set", below(&set)),
    ];
    let lines = lines.map(|(name, value)| format!("\n{name:<11}{value}")).concat();
    let text = format!("girih {version}{lines}");
    let json = json!({
        "version": version,
        "os": os,
        "arch": arch,
        "processors": processors,
        "threads": threads,
        "isa": isa,
        "cpu_features": features(),
        "machine": {
            "l1_bytes": machine.l1_bytes,
            "l2_bytes": machine.l2_bytes,
            "l3_bytes": machine.l3_bytes,
            "wake_ns": machine.wake_ns,
            "handover_ns": machine.handover_ns,
            "memory_latency_ns": memory.latency_ns,
            "memory_read_mbps": memory.read_mbps,
            "memory_write_mbps": memory.write_mbps,
            "memory_stream_mbps": memory.stream_mbps,
            "kept_in": file,
        },
        "tuning": parameters.into_iter().collect::<BTreeMap<&str, usize>>(),
        "devices": [{"name": "cpu", "memory_bytes": stats.memory_bytes}],
        "dtypes": dtypes,
        "ops": ops,
        "cache": cache,
        "environment": environment.into_iter().collect::<BTreeMap<String, String>>(),
    });
    Ok(Answer { text, json })
}

/// Describes the disk cache, after clearing it if requested.
pub fn cache(action: CacheAction) -> Result<Answer> {
    let disk = match girih::cache_on_disk()? {
        CacheState::Open(disk) => disk,
        CacheState::Off(reason) => {
            let text = format!("off: {reason}");
            return Ok(Answer { text, json: json!({"directory": null, "off": reason}) });
        }
    };
    let before = disk.stats();
    if matches!(action, CacheAction::Clear) {
        disk.clear();
    }
    let DiskStats { programs, size_bytes } = disk.stats();
    let directory = disk.directory().display().to_string();
    let mut text = format!("directory  {directory}\nprograms   {programs}, {size_bytes} bytes");
    let mut json = json!({"directory": directory, "programs": programs, "bytes": size_bytes});
    match action {
        CacheAction::Stats => {}
        CacheAction::Clear => {
            let removed = before.programs.saturating_sub(programs);
            text += &format!("\nremoved    {removed}");
            json["removed"] = removed.into();
        }
        CacheAction::List => {
            let entries = disk.entries();
            for entry in &entries {
                let age = entry.used.elapsed().unwrap_or_default().as_secs();
                text += &format!("\n{}  {:>9} bytes  {age} s ago", entry.name, entry.size_bytes);
            }
            let seconds = |at: SystemTime| {
                at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
            };
            let list = entries.iter().map(
                |e| json!({"name": e.name, "bytes": e.size_bytes, "last_used": seconds(e.used)}),
            );
            json["entries"] = list.collect();
        }
    }
    Ok(Answer { text, json })
}
