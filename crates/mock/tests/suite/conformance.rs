//! The conformance suite on every kind of mock device.

use girih_conformance::{Subject, suite};
use girih_cpu::{HostBackend, HostDevice};
use girih_mock::{LaunchTime, MemoryMode, MockAccelerator, MockConfig, NullDevice, Pace};
use std::sync::Arc;
use std::time::Duration;

fn mock(config: MockConfig) -> Subject {
    let backend = config.backend(Arc::new(HostBackend::default()));
    Subject::with_backend(backend, move || {
        let host = HostDevice::of_process().expect("the host's environment is sound");
        MockAccelerator::new(Arc::new(host), config.clone()).expect("memory can be reserved")
    })
}

fn regions() -> MockConfig {
    MockConfig { memory: MemoryMode::Regions(vec![64 << 20; 8]), ..MockConfig::default() }
}

fn physical() -> MockConfig {
    MockConfig { memory: MemoryMode::Physical(256 << 20), ..MockConfig::default() }
}

/// A device whose work also takes time on the host's clock.
fn slow() -> MockConfig {
    MockConfig {
        pace: Pace::Real,
        latency: Duration::from_micros(20),
        launch: LaunchTime::Fixed(Duration::from_micros(50)),
        ..regions()
    }
}

suite!(serial, mock(regions()));
suite!(concurrent, mock(MockConfig { concurrency: 4, ..regions() }));
suite!(by_address, mock(physical()));
suite!(corrected, mock(MockConfig { corrections: true, concurrency: 2, ..regions() }));
suite!(corrected_by_address, mock(MockConfig { corrections: true, ..physical() }));
suite!(in_real_time, mock(slow()));
suite!(own_queues, mock(MockConfig { own_queues: true, ..regions() }));
suite!(
    own_queues_corrected,
    mock(MockConfig { own_queues: true, corrections: true, host_control_flow: true, ..slow() })
);
suite!(host_control_flow, mock(MockConfig { host_control_flow: true, ..regions() }));
suite!(
    host_control_flow_corrected,
    mock(MockConfig { host_control_flow: true, corrections: true, concurrency: 2, ..physical() })
);
suite!(
    null,
    Subject::new(HostBackend::default(), || NullDevice::new(&[64 << 20])).without_results()
);
