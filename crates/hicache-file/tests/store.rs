//! Whose directory it is, what lies in it, and what an operator can ask.

mod stage;

use hicache_core::{
    Backing, DType, Depth, ErrorKind, Geometry, Namespace, PageLayout, PageOrder, Pending, Source, State,
    Store, StoreOptions, StoreRegistry,
};
use hicache_file::{FileOptions, FileStore};
use stage::{Stage, files, get, pool_of, set};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn open(dir: &Path) -> hicache_core::Result<FileStore> {
    FileStore::open(dir, FileOptions::default())
}

fn registry() -> StoreRegistry {
    let mut registry = StoreRegistry::default();
    registry.register(FileStore::FACTORY);
    registry
}

#[test]
fn a_directory_that_holds_something_else_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), b"years of work").unwrap();
    let error = open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(files(dir.path()), [dir.path().join("thesis.tex")]);
    let file = dir.path().join("thesis.tex");
    assert_eq!(open(&file).unwrap_err().kind(), ErrorKind::InvalidConfig, "a file is no directory");
    assert_eq!(std::fs::read(&file).unwrap(), b"years of work");
}

#[test]
fn a_marker_that_is_newer_damaged_or_of_another_format_is_refused_untouched() {
    let stage = Stage::new(4096);
    stage.set(1).unwrap();
    let marker = stage.dir.join("hicache.store");
    let sound = std::fs::read_to_string(&marker).unwrap();
    let damaged = sound.replacen("id = ", "id = 0", 1);
    for text in [
        damaged.as_str(),
        "",
        "something",
        &sound[..sound.len() - 2],
        &sealed_again(&sound, "version = 1", "version = 2"),
    ] {
        std::fs::write(&marker, text).unwrap();
        let before = files(&stage.dir).len();
        let error = open(&stage.dir).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{text:?}: {error}");
        assert_eq!(std::fs::read_to_string(&marker).unwrap(), text);
        assert_eq!(files(&stage.dir).len(), before);
    }
    std::fs::write(&marker, sealed_again(&sound, "format = files", "format = slab")).unwrap();
    assert!(open(&stage.dir).unwrap_err().to_string().contains("slab"));
    std::fs::write(&marker, sound).unwrap();
    assert!(stage.reopen().get(1).unwrap());
}

/// The marker with a line changed and its seal made good.
fn sealed_again(text: &str, from: &str, to: &str) -> String {
    let body = &text[..text.rfind("checksum = ").unwrap()].replace(from, to);
    format!(
        "{body}checksum = {:016x}\n",
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, body.as_bytes())
    )
}

#[test]
fn opening_one_new_directory_from_many_threads_makes_one_store() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/store");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| open(&path).unwrap());
            }
        });
        assert_eq!(files(&path), [path.join("hicache.store")]);
    }
}

#[test]
fn a_store_that_must_exist_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    options.set_existing(true);
    for path in [dir.path().join("typo"), dir.path().to_path_buf()] {
        let url = format!("file:{}", path.display());
        let error = registry().open(&url, options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn urls_name_paths_as_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("a b?c%d#e=ü");
    let encoded = odd.to_str().unwrap().replace('%', "%25").replace('?', "%3F").replace(' ', "%20");
    for url in [format!("file:{encoded}"), format!("file://{encoded}?direct=off&threads=2")] {
        registry().open(&url, StoreOptions::default()).unwrap();
    }
    assert!(odd.join("hicache.store").exists());
    for url in [
        "file:",
        "file://host/path",
        "file:/x?direct",
        "file:/x?direct=maybe",
        "file:/x?format=slab",
        "file:/x%2",
    ] {
        let error = registry().open(url, StoreOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error}");
    }
    assert!(!Path::new("/x").exists());
}

#[test]
fn b014_an_unknown_option_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}?durabilty=sync", dir.path().join("s").display());
    let error = registry().open(&url, StoreOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("did you mean durability?"), "{error}");
    let mut options = StoreOptions::default();
    options.set(Source::Env("HICACHE_FILE_THREADS".into()), "threads", "0");
    let url = format!("file:{}", dir.path().join("s").display());
    let error = registry().open(&url, options).unwrap_err();
    assert!(error.to_string().contains("HICACHE_FILE_THREADS"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn spread(dirs: &[PathBuf]) -> (Arc<dyn hicache_core::StorageBackend>, hicache_core::HostPool) {
    let options = FileOptions { dirs: dirs[1..].to_vec(), ..Default::default() };
    let store = FileStore::open(&dirs[0], options).unwrap();
    let layout = PageLayout::opaque(100).unwrap();
    let backend = store.backend(Namespace::named("spread", layout).unwrap()).unwrap();
    (backend, pool_of(layout.strides(4, hicache_core::Alignment::NONE).unwrap(), Backing::Private))
}

#[test]
fn a_directory_more_moves_only_its_own_share_of_the_keys() {
    let temporary = tempfile::tempdir().unwrap();
    let mut dirs: Vec<PathBuf> = (0..4).map(|n| temporary.path().join(n.to_string())).collect();
    let (backend, pool) = spread(&dirs[..3]);
    (0..600).for_each(|n| assert!(set(&*backend, &pool, n).is_ok()));
    for dir in &dirs[..3] {
        let pages = files(dir).len();
        assert!((120..280).contains(&pages), "{pages} pages of 600 in one of three directories");
    }
    drop(backend);
    // The order of the directories does not matter, and neither does where they are mounted.
    dirs[..3].rotate_left(1);
    let moved = temporary.path().join("moved");
    std::fs::rename(&dirs[0], &moved).unwrap();
    dirs[0] = moved;
    let (backend, pool) = spread(&dirs[..3]);
    (0..600).for_each(|n| assert!(get(&*backend, &pool, n).unwrap(), "page {n}"));
    drop(backend);
    std::fs::create_dir(&dirs[3]).unwrap();
    let (backend, pool) = spread(&dirs);
    let kept = (0..600).filter(|n| get(&*backend, &pool, *n).unwrap()).count();
    assert!((380..520).contains(&kept), "{kept} of 600 are where they were; a quarter has a new place");
}

#[test]
fn a_directory_of_a_store_whose_disk_is_not_mounted_is_not_made_anew() {
    let temporary = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = (0..3).map(|n| temporary.path().join(n.to_string())).collect();
    drop(spread(&dirs));
    for gone in [1, 2] {
        let away = temporary.path().join("away");
        std::fs::rename(&dirs[gone], &away).unwrap();
        let options = FileOptions { dirs: dirs[1..].to_vec(), ..Default::default() };
        let error = FileStore::open(&dirs[0], options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("mount it"), "{error}");
        assert!(!dirs[gone].exists());
        std::fs::rename(&away, &dirs[gone]).unwrap();
    }
    drop(spread(&dirs));
}

#[test]
fn one_directory_under_two_names_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let (dir, link) = (temporary.path().join("store"), temporary.path().join("link"));
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let options = FileOptions { dirs: vec![link], ..Default::default() };
    let error = FileStore::open(&dir, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}

#[test]
fn namespaces_of_any_name_keep_apart_and_a_layout_is_for_good() {
    let stage = Stage::new(4096);
    let names = [
        "/models/".repeat(100),
        "a/../../b".to_string(),
        "ünïcode 模型".to_string(),
        ".".to_string(),
        "..".to_string(),
    ];
    for name in &names {
        let backend = stage.store.backend(Namespace::named(name, stage.layout).unwrap()).unwrap();
        assert!(!get(&*backend, &stage.pool, 1).unwrap(), "{name}");
        set(&*backend, &stage.pool, 1).unwrap();
        assert!(get(&*backend, &stage.pool, 1).unwrap());
        let other = Namespace::named(name, PageLayout::opaque(4095).unwrap()).unwrap();
        let error = stage.store.backend(other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.to_string().contains("len=4096") && error.to_string().contains("len=4095"), "{error}");
    }
    assert!(stage.dir.join("..").read_dir().unwrap().count() == 1, "nothing outside the store");
    let held = wait({
        let store = stage.store.clone();
        async move { store.namespaces().await }
    });
    let mut held: Vec<String> = held.iter().map(|namespace| namespace.name().to_string()).collect();
    let mut names = names.to_vec();
    held.sort();
    names.sort();
    assert_eq!(held, names);
}

fn wait<T: Send + 'static>(future: impl Future<Output = hicache_core::Result<T>> + Send + 'static) -> T {
    Pending::new(future).wait().unwrap()
}

#[test]
fn two_openers_with_different_layouts_race_and_one_of_them_is_refused() {
    let stage = Stage::new(4096);
    let namespaces =
        [4096, 8192].map(|len| Namespace::named("raced", PageLayout::opaque(len).unwrap()).unwrap());
    let backends = namespaces.clone().map(|namespace| stage.store.backend(namespace).unwrap());
    let pools = namespaces.map(|namespace| stage::pool(namespace.layout(), 1, hicache_core::Alignment::NONE));
    set(&*backends[0], &pools[0], 1).unwrap();
    assert_eq!(set(&*backends[1], &pools[1], 2).unwrap_err().kind(), ErrorKind::Incompatible);
    assert!(get(&*backends[0], &pools[0], 1).unwrap());
}

#[test]
fn clear_takes_one_namespace_and_its_backends_go_on() {
    let stage = Stage::new(4096);
    let kept = stage.store.backend(Namespace::named("kept", stage.layout).unwrap()).unwrap();
    for n in 0..10 {
        stage.set(n).unwrap();
        set(&*kept, &stage.pool, n).unwrap();
    }
    let (store, namespace) = (stage.store.clone(), Namespace::named("test", stage.layout).unwrap());
    let clear = move || {
        let (store, namespace) = (store.clone(), namespace.clone());
        wait(async move { store.clear(&namespace).await })
    };
    assert_eq!(clear(), 10);
    assert_eq!(clear(), 0);
    (0..10).for_each(|n| assert!(!stage.get(n).unwrap() && get(&*kept, &stage.pool, n).unwrap()));
    (0..10).for_each(|n| assert!(stage.set(n).is_ok() && stage.get(n).unwrap()));
    drop((clear, kept));
    let stage = stage.reopen();
    (0..10).for_each(|n| assert!(stage.get(n).unwrap()));
    assert!(stage::leftovers(&stage.dir).is_empty());
}

#[test]
fn a_damaged_record_is_told_and_made_anew_by_the_next_set() {
    let stage = Stage::new(4096);
    stage.set(1).unwrap();
    let record = files(&stage.dir).into_iter().find(|file| file.ends_with("namespace")).unwrap();
    std::fs::write(&record, b"hicache namespace\nname = \xff").unwrap();
    let finds = stage.scan(Depth::Contents, false);
    assert!(matches!(&finds[..], [found] if matches!(found.state, State::Wrong(_))), "{finds:?}");
    let stage = stage.reopen();
    assert!(stage.get(1).unwrap(), "pages speak for themselves");
    stage.set(2).unwrap();
    assert!(
        stage.scan(Depth::Contents, false).iter().filter(|found| found.state == State::Sound).count() == 2
    );
}

#[test]
fn a_copied_store_works_where_it_is_copied_to() {
    let stage = Stage::new(515_328);
    (0..5).for_each(|n| assert!(stage.set(n).is_ok()));
    let copy = stage.dir.with_file_name("copy");
    assert!(std::process::Command::new("cp").arg("-r").args([&stage.dir, &copy]).status().unwrap().success());
    let copied = Stage::at(&copy, 515_328, FileOptions::default(), None).unwrap();
    (0..5).for_each(|n| assert!(copied.get(n).unwrap()));
}

#[test]
fn directories_on_one_file_system_have_its_room_once() {
    let temporary = tempfile::tempdir().unwrap();
    let one = open(&temporary.path().join("a")).unwrap().health().available_len.unwrap();
    std::fs::create_dir(temporary.path().join("b")).unwrap();
    let options = FileOptions { dirs: vec![temporary.path().join("b")], ..Default::default() };
    let two = FileStore::open(temporary.path().join("a"), options).unwrap().health().available_len.unwrap();
    assert!(two < one + one / 2, "{two} bytes in two directories, {one} in one");
}

#[test]
fn only_what_a_dead_writer_left_is_swept() {
    let stage = Stage::new(4096);
    stage.set(1).unwrap();
    let (dir, outside) = (stage.dir.clone(), stage.dir.with_file_name("outside"));
    std::fs::create_dir_all(outside.join("project")).unwrap();
    std::fs::write(outside.join("project/file"), b"precious").unwrap();
    std::fs::write(outside.join("project.lock"), b"").unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    std::fs::create_dir_all(dir.join("tmp/foo")).unwrap();
    std::fs::write(dir.join("tmp/foo/precious"), b"precious").unwrap();
    std::fs::create_dir_all(dir.join("tmp").join(id).join("0/aa")).unwrap();
    std::fs::write(dir.join("tmp").join(id).join("0/aa/page"), b"of a cleared namespace").unwrap();
    for lock in [".lock", "..lock", "...lock", "foo.lock", &format!("{id}.lock"), "0123.lock"] {
        std::fs::write(dir.join("tmp").join(lock), b"").unwrap();
    }
    let stage = stage.reopen();
    assert!(stage.get(1).unwrap());
    assert!(dir.join("tmp/foo/precious").exists());
    stage::eventually(|| !dir.join("tmp").join(id).exists());
    stage::eventually(|| !dir.join("tmp").join(format!("{id}.lock")).exists());
    std::fs::remove_dir_all(dir.join("tmp")).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("tmp")).unwrap();
    let stage = stage.reopen();
    assert!(stage.get(1).unwrap());
    assert!(outside.join("project/file").exists() && outside.join("project.lock").exists());
}

#[test]
fn a_draft_of_the_marker_goes_with_its_dead_writer() {
    let stage = Stage::new(4096);
    let draft = stage.dir.join(".hicache.store.0123456789abcdef0123456789abcdef");
    let other = stage.dir.join(".hicache.store.mine");
    std::fs::write(&draft, b"half").unwrap();
    std::fs::write(&other, b"not a draft").unwrap();
    let stage = stage.reopen();
    assert!(!draft.exists() && other.exists());
    drop(stage);
}

#[test]
fn b038_a_marker_or_a_record_that_is_no_small_file_is_refused_at_once() {
    let stage = Stage::new(4096);
    stage.set(1).unwrap();
    let record = files(&stage.dir).into_iter().find(|file| file.ends_with("namespace")).unwrap();
    let marker = stage.dir.join("hicache.store");
    let fifo = |path: &Path| {
        std::fs::remove_file(path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let kept = std::fs::read(&marker).unwrap();
    fifo(&marker);
    assert_eq!(open(&stage.dir).unwrap_err().kind(), ErrorKind::Incompatible);
    std::fs::remove_file(&marker).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &marker).unwrap();
    assert_eq!(open(&stage.dir).unwrap_err().kind(), ErrorKind::Incompatible);
    std::fs::remove_file(&marker).unwrap();
    std::fs::File::create(&marker).unwrap().set_len(6 << 30).unwrap();
    assert_eq!(open(&stage.dir).unwrap_err().kind(), ErrorKind::Incompatible);
    std::fs::remove_file(&marker).unwrap();
    std::fs::write(&marker, kept).unwrap();
    fifo(&record);
    let stage = stage.reopen();
    assert!(stage.get(1).unwrap());
    assert!(
        matches!(&stage.scan(Depth::Contents, false)[..], [found] if matches!(found.state, State::Wrong(_)))
    );
    stage.set(2).unwrap();
    assert!(stage.get(1).unwrap() && stage.get(2).unwrap());
}

/// Two layouts of one length, and one of another.
fn layouts() -> [PageLayout; 3] {
    let geometry = |tokens| Geometry::Mha { layers: 4, tokens, heads: 2, head_dim: 8, dtype: DType::Bf16 };
    let layout = |tokens, order| PageLayout::new(geometry(tokens), order).unwrap();
    [
        layout(16, PageOrder::PageFirst),
        layout(16, PageOrder::PageFirstDirect),
        layout(32, PageOrder::PageFirst),
    ]
}

#[test]
fn a_page_of_another_layout_is_neither_served_nor_taken_for_damage() {
    let [first, second, longer] = layouts();
    for other in [second, longer] {
        for how in ["cleared", "record damaged", "record removed"] {
            let stage = Stage::new(4096);
            let namespace = |layout| Namespace::named("raced", layout).unwrap();
            let old = stage.store.backend(namespace(first)).unwrap();
            let (old_pool, new_pool) = (layout_pool(&first), layout_pool(&other));
            set(&*old, &old_pool, 1).unwrap();
            assert!(get(&*old, &old_pool, 1).unwrap());
            let record = files(&stage.dir).into_iter().find(|file| file.ends_with("namespace")).unwrap();
            match how {
                "cleared" => {
                    let (store, namespace) = (stage.store.clone(), namespace(first));
                    assert_eq!(wait(async move { store.clear(&namespace).await }), 1);
                }
                "record damaged" => std::fs::write(&record, b"hicache namespace\n").unwrap(),
                _ => std::fs::remove_file(&record).unwrap(),
            }
            let new = stage.store.backend(namespace(other)).unwrap();
            set(&*new, &new_pool, 2).unwrap();
            assert!(!get(&*old, &old_pool, 2).unwrap(), "{how}: another layout's page is a miss");
            assert!(get(&*new, &new_pool, 2).unwrap(), "{how}: and stays where it is");
            assert!(!get(&*new, &new_pool, 1).unwrap(), "{how}");
            if how != "cleared" {
                assert!(
                    get(&*old, &old_pool, 1).unwrap(),
                    "{how}: nor does the new one take the old one's for damage"
                );
                let error = set(&*new, &new_pool, 1).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
            }
            assert_eq!((old.stats().damaged, new.stats().damaged), (0, 0), "{how}");
            for depth in [Depth::Names, Depth::Contents] {
                stage.scan(depth, true);
                assert!(get(&*new, &new_pool, 2).unwrap(), "{how}: repair by {depth:?} leaves it, too");
                assert_eq!(get(&*old, &old_pool, 1).unwrap(), how != "cleared", "{how}: and the old one's");
            }
        }
    }
}

fn layout_pool(layout: &PageLayout) -> hicache_core::HostPool {
    stage::pool(layout, 4, hicache_core::Alignment::NONE)
}

#[test]
fn a_record_of_another_namespace_does_no_harm() {
    let stage = Stage::new(4096);
    let other = stage.store.backend(Namespace::named("other", stage.layout).unwrap()).unwrap();
    stage.set(1).unwrap();
    set(&*other, &stage.pool, 2).unwrap();
    let records: Vec<_> = files(&stage.dir).into_iter().filter(|file| file.ends_with("namespace")).collect();
    std::fs::copy(&records[0], &records[1]).unwrap();
    let wrong = stage.scan(Depth::Contents, true).into_iter().filter(|found| found.state != State::Sound);
    assert_eq!(wrong.count(), 1, "the record, and nothing else");
    let stage = stage.reopen();
    let other = stage.store.backend(Namespace::named("other", stage.layout).unwrap()).unwrap();
    assert!(stage.get(1).unwrap() && get(&*other, &stage.pool, 2).unwrap());
    stage.set(3).unwrap();
    set(&*other, &stage.pool, 3).unwrap();
    assert!(
        stage.scan(Depth::Contents, false).iter().filter(|found| found.state == State::Sound).count() == 4
    );
}

#[test]
fn a_link_in_the_place_of_a_folder_leads_no_page_out_of_the_store() {
    let stage = Stage::new(4096);
    assert!(stage.set(1).is_ok());
    let bucket = stage.file(1).parent().unwrap().to_owned();
    let namespace = bucket.parent().unwrap().to_owned();
    // Another page of the same folder, and one of another.
    let byte = |n: u64| stage::key(n).as_bytes()[0];
    let same = (2..).find(|n| byte(*n) == byte(1)).unwrap();
    let other = (2..).find(|n| byte(*n) != byte(1)).unwrap();
    let outside = tempfile::tempdir().unwrap();
    for (folder, pages) in
        [(bucket.clone(), &[same][..]), (namespace, &[same, other]), (stage.dir.join("ns"), &[same, other])]
    {
        let aside = outside.path().join("aside");
        std::fs::rename(&folder, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &folder).unwrap();
        let before = stage::files(&aside);
        let fresh = stage.store.backend(stage_namespace(&stage)).unwrap();
        for n in pages {
            for backend in [&stage.backend, &fresh] {
                let error = stage::set(&**backend, &stage.pool, *n).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
                assert!(error.to_string().contains("a link stands"), "{error}");
            }
        }
        assert_eq!(stage::files(&aside), before);
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(&aside, &folder).unwrap();
    }
    assert!(stage.set(same).is_ok() && stage.set(other).is_ok() && stage.get(1).unwrap());
}

fn stage_namespace(stage: &Stage) -> Namespace {
    Namespace::named("test", stage.layout).unwrap()
}

#[test]
fn a_store_whose_directory_is_deleted_is_not_writable() {
    let stage = Stage::new(4096);
    assert!(stage.set(1).is_ok() && stage.store.health().writable);
    std::fs::remove_dir_all(&stage.dir).unwrap();
    assert!(!stage.store.health().writable);
    assert!(stage.set(2).is_err());
    assert!(!stage.get(1).unwrap_or(false));
    stage.all_slots_come_back();
}
