//! Page keys of tokens.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hicache_core::{KeyUnits, PageKey};
use std::hint::black_box;
use std::num::NonZeroUsize;

const TOKENS: u64 = 16_384;

fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keys");
    let tokens: Vec<u64> = (0..TOKENS).map(|at| at * 7_919 % 151_936).collect();
    group.throughput(Throughput::Elements(TOKENS));
    for page_size in [1, 16, 64, 512] {
        let page_size = NonZeroUsize::new(page_size).expect("not 0");
        for (name, units) in [("tokens", KeyUnits::Token), ("bigrams", KeyUnits::Bigram)] {
            group.bench_function(format!("{name}/{page_size}"), |bencher| {
                bencher
                    .iter(|| PageKey::of_pages(None, black_box(&tokens), page_size, units).expect("tokens"));
            });
        }
    }
    group.finish();
    let key = PageKey::of_page(None, &[1], KeyUnits::Token).expect("a token");
    let text = key.to_string();
    criterion.bench_function("keys/parse", |bencher| bencher.iter(|| black_box(&text).parse::<PageKey>()));
    // Every operation of a file store makes a path of two.
    criterion.bench_function("keys/print", |bencher| bencher.iter(|| black_box(&key).to_string()));
}

criterion_group!(benches, keys);
criterion_main!(benches);
