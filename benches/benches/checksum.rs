//! The checksum of a page as its file carries it, gathered over one piece and over many.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hicache_alloc::{Alignment, Backing, HostPool, Page, RegionSpec, Strides};
use std::hint::black_box;

fn page(backing: Backing, pieces: u32, page_len: usize) -> Page {
    let strides =
        Strides::new(pieces, 1, page_len / pieces as usize, Alignment::base_page()).expect("strides");
    let region = RegionSpec { len: strides.region_len(), backing, ..RegionSpec::default() }.map();
    let pool = HostPool::new(region.expect("a region"), strides, &[]).expect("a pool");
    let mut page = pool.alloc(1).expect("a free slot").remove(0);
    for plane in 0..pieces {
        let len = page.piece(plane).len();
        let bytes: Vec<u8> = (0..len).map(|at| ((at * 31) >> 3) as u8).collect();
        page.piece_mut(plane).copy_from(0, &bytes);
    }
    page.freeze()
}

fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    for len in [4 << 10, 64 << 10, 1 << 20, 4 << 20] {
        group.throughput(Throughput::Bytes(len as u64));
        for (name, backing, pieces) in [
            ("one_piece", Backing::Private, 1),
            ("64_pieces", Backing::Private, 64),
            // Memory that others may write is copied out first.
            ("one_shared_piece", Backing::Memfd, 1),
        ] {
            let page = page(backing, pieces, len);
            group.bench_function(format!("{name}/{}KiB", len >> 10), |bencher| {
                bencher.iter(|| hicache_file::checksum(black_box(&page)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, checksum);
criterion_main!(benches);
