//! Taking and freeing slots, and where pieces lie.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hicache_alloc::{Alignment, HostPool, PageIndex, RegionSpec, Strides};
use std::hint::black_box;

const SLOTS: u32 = 16_384;

fn pool() -> HostPool {
    let strides = Strides::new(1, SLOTS, 4096, Alignment::base_page()).expect("strides");
    let region = RegionSpec { len: strides.region_len(), ..RegionSpec::default() }.map().expect("a region");
    HostPool::new(region, strides, &[]).expect("a pool")
}

fn take_and_free(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    let pool = pool();
    for count in [1, 32, 128] {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("take_and_free/{count}"), |bencher| {
            bencher.iter(|| drop(black_box(pool.alloc(count).expect("free slots"))));
        });
    }
    // The free slots lie behind those in use.
    let _most = pool.alloc(SLOTS as usize - 128).expect("free slots");
    group.bench_function("take_and_free/128_of_a_full_pool", |bencher| {
        bencher.iter(|| drop(black_box(pool.alloc(128).expect("free slots"))));
    });
    group.throughput(Throughput::Elements(128));
    group.bench_function("freeze/128", |bencher| {
        let taken = || pool.alloc(128).expect("free slots");
        bencher.iter_batched(
            taken,
            |pages| pages.into_iter().map(|page| page.freeze()).collect::<Vec<_>>(),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn strides(criterion: &mut Criterion) {
    let strides = Strides::new(64, SLOTS, 4096, Alignment::base_page()).expect("strides");
    criterion.bench_function("strides/64_pieces", |bencher| {
        bencher.iter(|| {
            let index = PageIndex::new(black_box(77));
            (0..64).map(|plane| strides.piece(index, plane).start).sum::<usize>()
        });
    });
}

criterion_group!(benches, take_and_free, strides);
criterion_main!(benches);
