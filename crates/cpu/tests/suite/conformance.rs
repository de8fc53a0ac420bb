//! The suite on the host device.

use girih_conformance::{Subject, suite};
use girih_cpu::{HostBackend, HostDevice};
use std::sync::Arc;

suite!(host, Subject::new(HostBackend::default(), || Arc::new(HostDevice::of_process().unwrap())));
suite!(second, Subject::new(HostBackend::default(), || Arc::new(HostDevice::numbered(1).unwrap())));
