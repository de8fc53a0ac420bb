//! `girih info` and `girih cache`: what this installation has.

use crate::Answer;
use girih::Result;
use serde_json::json;

/// Processor features that kernels can use, as far as this machine has them.
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

/// Version, processor, devices, caches.
pub fn info() -> Result<Answer> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let stats = girih::cache_stats()?;
    let dtypes: Vec<&str> = girih::DType::ALL.iter().map(|d| d.name()).collect();
    let ops = girih::ir::OpCode::ALL.len();
    let version = env!("CARGO_PKG_VERSION");
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let text = format!(
        "girih {version}\nplatform   {os} {arch}\nprocessor  {threads} threads, {}\ndevices    cpu \
         ({} bytes in use)\ndtypes     {}\nops        {ops}\ncache      {} kernels, {} bytes, in \
         this process",
        features().join(" "),
        stats.memory_bytes,
        dtypes.join(" "),
        stats.cached_kernels,
        stats.cache_size_bytes,
    );
    let json = json!({
        "version": version,
        "os": os,
        "arch": arch,
        "threads": threads,
        "cpu_features": features(),
        "devices": [{"name": "cpu", "memory_bytes": stats.memory_bytes}],
        "dtypes": dtypes,
        "ops": ops,
        "cache": {"kernels": stats.cached_kernels, "bytes": stats.cache_size_bytes},
    });
    Ok(Answer { text, json })
}

/// Counts of the cache, after forgetting its programs if asked to.
pub fn cache(clear: bool) -> Result<Answer> {
    if clear {
        girih::clear_cache()?;
    }
    let stats = girih::cache_stats()?;
    let text = format!(
        "{}{} kernels, {} bytes; {} hits, {} misses, {} compilations",
        if clear { "cleared: " } else { "" },
        stats.cached_kernels,
        stats.cache_size_bytes,
        stats.hits,
        stats.misses,
        stats.compiles
    );
    let json = json!({
        "cleared": clear,
        "kernels": stats.cached_kernels,
        "bytes": stats.cache_size_bytes,
        "hits": stats.hits,
        "misses": stats.misses,
        "compiles": stats.compiles,
    });
    Ok(Answer { text, json })
}
