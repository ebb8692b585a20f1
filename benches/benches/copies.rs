//! Bytes copied into the pieces of a page, and out of them.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hicache_alloc::{Alignment, HostPool, RegionSpec, Strides};
use std::hint::black_box;

const PAGE_LEN: usize = 1 << 20;

fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("page");
    group.throughput(Throughput::Bytes(PAGE_LEN as u64));
    let mut bytes = vec![7; PAGE_LEN];
    for pieces in [1, 16, 256] {
        let piece_len = PAGE_LEN / pieces as usize;
        let strides = Strides::new(pieces, 1, piece_len, Alignment::base_page()).expect("strides");
        let region =
            RegionSpec { len: strides.region_len(), ..RegionSpec::default() }.map().expect("a region");
        let pool = HostPool::new(region, strides, &[]).expect("a pool");
        let mut page = pool.alloc(1).expect("a free slot").remove(0);
        group.bench_function(format!("copy_in/{pieces}_pieces"), |bencher| {
            bencher.iter(|| {
                for (plane, part) in (0..pieces).zip(black_box(&bytes).chunks(piece_len)) {
                    page.piece_mut(plane).copy_from(0, part);
                }
            });
        });
        group.bench_function(format!("copy_out/{pieces}_pieces"), |bencher| {
            bencher.iter(|| {
                for (plane, part) in (0..pieces).zip(bytes.chunks_mut(piece_len)) {
                    page.piece(plane).copy_to(0, part);
                }
                black_box(&bytes);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, copies);
criterion_main!(benches);
