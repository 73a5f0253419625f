//! A simulated file system's names and files, each as it is and as the medium has it.
//!
//! A directory is two maps from name to node: the newest, which every call sees, and the durable one, which is
//! what a power cut leaves. Every creation, rename, link and removal is one *change*, waiting until `sync_dir`
//! of a directory it touches. A power cut applies each waiting change or not, one by one and independently:
//! harsher than a journal, which keeps their order. A rename is one change, so it never loses the file.
//! A node lives for as long as a name, of either map or of a waiting change, or an open file holds it.

use super::content::Content;
use super::random::Random;
use super::ring::RingContent;
use crate::storage::Entry;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

pub(super) type NodeId = u64;
type Names = BTreeMap<String, NodeId>;

/// The root directory.
const ROOT: NodeId = 0;

/// A file or a directory.
enum Node {
    File(FileNode),
    Directory(Directory),
}

/// A directory's names.
#[derive(Clone, Default)]
struct Directory {
    newest: Names,
    durable: Names,
}

/// A file: its bytes, or a ring's memory, and how many have it open.
pub(super) struct FileNode {
    pub(super) body: Body,
    pub(super) opens: usize,
}

/// What a file consists of.
pub(super) enum Body {
    Bytes(Content),
    Ring(RingContent),
}

impl Body {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(content) => content.len(),
            Self::Ring(ring) => ring.len(),
        }
    }

    pub(super) fn sync(&mut self) {
        match self {
            Self::Bytes(content) => content.sync(),
            Self::Ring(ring) => ring.sync(),
        }
    }
}

/// A name in a directory gets a node, or goes.
#[derive(Clone)]
struct Effect {
    directory: NodeId,
    name: String,
    node: Option<NodeId>,
}

impl Effect {
    fn apply(&self, names: &mut Names) {
        match self.node {
            Some(node) => names.insert(self.name.clone(), node),
            None => names.remove(&self.name),
        };
    }
}

/// What one call did to names: all of it is durable, or nothing.
type Change = Vec<Effect>;

/// A directory and a name in it that may or may not be taken.
struct Place {
    directory: NodeId,
    name: String,
}

impl Place {
    fn becomes(&self, node: Option<NodeId>) -> Effect {
        Effect {
            directory: self.directory,
            name: self.name.clone(),
            node,
        }
    }
}

/// All names and files.
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    waiting: Vec<Change>,
    next: NodeId,
}

impl Tree {
    /// An empty root directory.
    pub(super) fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]);
        Self {
            nodes,
            waiting: Vec::new(),
            next: ROOT + 1,
        }
    }

    /// The file at `path`.
    pub(super) fn find_file(&self, path: &Path) -> Result<NodeId, Errno> {
        let node = self.find(path)?;
        match self.nodes[&node] {
            Node::File(_) => Ok(node),
            Node::Directory(_) => Err(Errno::ISDIR),
        }
    }

    /// A file that is known to exist.
    pub(super) fn file(&self, node: NodeId) -> Result<&FileNode, Errno> {
        match self.nodes.get(&node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(Errno::BADF),
        }
    }

    /// A file that is known to exist, for change.
    pub(super) fn file_mut(&mut self, node: NodeId) -> Result<&mut FileNode, Errno> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(Errno::BADF),
        }
    }

    /// Every file's body.
    pub(super) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut Body> {
        self.nodes.values_mut().filter_map(|node| match node {
            Node::File(file) => Some(&mut file.body),
            Node::Directory(_) => None,
        })
    }

    /// The bytes of all files that still have a name or are open.
    pub(super) fn used_bytes(&self) -> u64 {
        let mut named = BTreeSet::new();
        for node in self.nodes.values() {
            if let Node::Directory(directory) = node {
                named.extend(directory.newest.values().copied());
            }
        }
        let files = self.nodes.iter().filter_map(|(id, node)| match node {
            Node::File(file) if file.opens > 0 || named.contains(id) => Some(file),
            _ => None,
        });
        files.map(|file| file.body.len() as u64).sum()
    }

    /// Gives `path` a new file, in place of one that may be there.
    pub(super) fn create_file(&mut self, path: &Path, body: Body) -> Result<NodeId, Errno> {
        let place = self.place(path)?;
        if matches!(self.at(&place), Some(node) if self.is_directory(node)) {
            return Err(Errno::ISDIR);
        }
        let node = self.insert(Node::File(FileNode { body, opens: 0 }));
        self.change(vec![place.becomes(Some(node))]);
        Ok(node)
    }

    pub(super) fn rename(&mut self, source: &Path, target: &Path) -> Result<(), Errno> {
        let (source_place, target_place) = (self.place(source)?, self.place(target)?);
        let node = self.at(&source_place).ok_or(Errno::NOENT)?;
        match self.at(&target_place) {
            Some(replaced) if replaced == node => return Ok(()),
            Some(replaced) if self.is_directory(replaced) => return Err(Errno::EXIST),
            Some(_) if self.is_directory(node) => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.change(vec![
            source_place.becomes(None),
            target_place.becomes(Some(node)),
        ]);
        Ok(())
    }

    pub(super) fn link(&mut self, source: &Path, target: &Path) -> Result<(), Errno> {
        let node = self.find_file(source)?;
        let place = self.place(target)?;
        if self.at(&place).is_some() {
            return Err(Errno::EXIST);
        }
        self.change(vec![place.becomes(Some(node))]);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> Result<(), Errno> {
        self.find_file(path)?;
        let place = self.place(path)?;
        self.change(vec![place.becomes(None)]);
        Ok(())
    }

    /// Makes a directory, durable at once together with everything else its parent waits for.
    pub(super) fn create_dir(&mut self, path: &Path) -> Result<(), Errno> {
        match self.find(path) {
            Ok(node) if self.is_directory(node) => return Ok(()),
            Ok(_) => return Err(Errno::EXIST),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        let parent = path.parent().ok_or(Errno::NOENT)?;
        self.create_dir(parent)?;
        let place = self.place(path)?;
        let node = self.insert(Node::Directory(Directory::default()));
        self.change(vec![place.becomes(Some(node))]);
        self.sync_dir(parent)
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<(), Errno> {
        let node = self.find(path)?;
        if !self.directory(node)?.newest.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let place = self.place(path)?;
        self.change(vec![place.becomes(None)]);
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<Entry>, Errno> {
        let names = &self.directory(self.find(path)?)?.newest;
        let entry = |(name, node): (&String, &NodeId)| {
            let (bytes, is_dir) = match &self.nodes[node] {
                Node::File(file) => (file.body.len() as u64, false),
                Node::Directory(_) => (0, true),
            };
            Entry {
                name: name.clone(),
                bytes,
                is_dir,
            }
        };
        Ok(names.iter().map(entry).collect())
    }

    /// Makes every waiting change that touches the directory durable.
    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<(), Errno> {
        let directory = self.find(path)?;
        self.directory(directory)?;
        let touches =
            |change: &mut Change| change.iter().any(|effect| effect.directory == directory);
        let due: Vec<Change> = self.waiting.extract_if(.., touches).collect();
        for change in &due {
            self.make_durable(change);
        }
        self.forget_unreachable();
        Ok(())
    }

    /// The process dies: open files are closed, all names and bytes stay as they are.
    pub(super) fn after_process_crash(&self) -> Self {
        self.after(|body| match body {
            Body::Bytes(content) => Body::Bytes(content.clone()),
            Body::Ring(ring) => Body::Ring(ring.after_process_crash()),
        })
    }

    /// The power fails: the names and bytes that are left.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> Self {
        let mut left = self.after(|body| match body {
            Body::Bytes(content) => {
                let mut content = content.clone();
                content.cut_power(random);
                Body::Bytes(content)
            }
            Body::Ring(ring) => Body::Ring(ring.after_power_cut(random)),
        });
        let share = random.share_of_eight();
        for change in std::mem::take(&mut left.waiting) {
            if random.chance(share, 8) {
                left.make_durable(&change);
            }
        }
        for node in left.nodes.values_mut() {
            if let Node::Directory(directory) = node {
                directory.newest.clone_from(&directory.durable);
            }
        }
        left.forget_unreachable();
        left
    }

    fn after(&self, mut body_after: impl FnMut(&Body) -> Body) -> Self {
        let mut node_after = |node: &Node| match node {
            Node::File(file) => Node::File(FileNode {
                body: body_after(&file.body),
                opens: 0,
            }),
            Node::Directory(directory) => Node::Directory(directory.clone()),
        };
        let nodes = self
            .nodes
            .iter()
            .map(|(id, node)| (*id, node_after(node)))
            .collect();
        let mut left = Self {
            nodes,
            waiting: self.waiting.clone(),
            next: self.next,
        };
        left.forget_unreachable();
        left
    }

    /// Drops every node that no name, waiting change or open file holds.
    pub(super) fn forget_unreachable(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut ahead = vec![ROOT];
        ahead.extend(
            self.waiting
                .iter()
                .flatten()
                .filter_map(|effect| effect.node),
        );
        ahead.extend(self.nodes.iter().filter_map(|(id, node)| match node {
            Node::File(file) if file.opens > 0 => Some(*id),
            _ => None,
        }));
        while let Some(id) = ahead.pop() {
            reached.insert(id);
            if let Some(Node::Directory(directory)) = self.nodes.get(&id) {
                let below = directory.newest.values().chain(directory.durable.values());
                ahead.extend(below.filter(|node| !reached.contains(node)));
            }
        }
        self.nodes.retain(|id, _| reached.contains(id));
    }

    fn insert(&mut self, node: Node) -> NodeId {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        id
    }

    fn change(&mut self, change: Change) {
        for effect in &change {
            if let Some(Node::Directory(directory)) = self.nodes.get_mut(&effect.directory) {
                effect.apply(&mut directory.newest);
            }
        }
        self.waiting.push(change);
    }

    fn make_durable(&mut self, change: &Change) {
        for effect in change {
            if let Some(Node::Directory(directory)) = self.nodes.get_mut(&effect.directory) {
                effect.apply(&mut directory.durable);
            }
        }
    }

    fn is_directory(&self, node: NodeId) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Directory(_)))
    }

    fn directory(&self, node: NodeId) -> Result<&Directory, Errno> {
        match self.nodes.get(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn at(&self, place: &Place) -> Option<NodeId> {
        self.directory(place.directory)
            .ok()?
            .newest
            .get(&place.name)
            .copied()
    }

    fn find(&self, path: &Path) -> Result<NodeId, Errno> {
        self.walk(&components(path)?)
    }

    fn place(&self, path: &Path) -> Result<Place, Errno> {
        let mut names = components(path)?;
        let name = names.pop().ok_or(Errno::EXIST)?;
        let directory = self.walk(&names)?;
        self.directory(directory)?;
        Ok(Place { directory, name })
    }

    fn walk(&self, names: &[String]) -> Result<NodeId, Errno> {
        names.iter().try_fold(ROOT, |node, name| {
            self.directory(node)?
                .newest
                .get(name)
                .copied()
                .ok_or(Errno::NOENT)
        })
    }
}

/// The names a path leads through; a relative path starts at the root.
pub(super) fn components(path: &Path) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                names.push(name.to_str().ok_or(Errno::ILSEQ)?.to_owned());
            }
            Component::ParentDir => drop(names.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(names)
}
