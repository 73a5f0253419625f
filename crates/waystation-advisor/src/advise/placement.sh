# What a placement needs. Everything is checked before anything is changed; what fails is taken back.
PATH=$PATH:/usr/sbin:/sbin
WORK=
TAKE_BACK=
LATER=

die() {
  echo "placement: $*" >&2
  exit 1
}

quote() {
  printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}

# Remembers a command that takes back what was just done; the last one is run first.
take_back_with() {
  TAKE_BACK="$1
$TAKE_BACK"
}

# Remembers a call for the script that undoes all of this later.
undo_with() {
  LATER="$1
$LATER"
}

ended() {
  code=$?
  trap - EXIT INT TERM HUP
  set +e
  if [ "$code" -ne 0 ] && [ -n "$TAKE_BACK" ]; then
    echo "placement: it failed; what was done is taken back" >&2
    eval "$TAKE_BACK"
  fi
  if [ -n "$WORK" ]; then
    rm -rf --one-file-system "$WORK"
  fi
  exit "$code"
}

begin() {
  for tool in findmnt blkid wipefs blockdev mountpoint mkfs.ext4 sha256sum; do
    command -v "$tool" >/dev/null || die "$tool is not installed"
  done
  [ "$(id -u)" = 0 ] || die "this must run as root"
  trap ended EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  WORK=$(mktemp -d)
  mkdir "$WORK/other"
}

# DEVICE BYTES: it is a block device, large enough, and nothing is on it.
check_empty() {
  [ -n "$1" ] || die "a variable at the top of this script is not set: name an empty device of at least $2 bytes"
  [ -b "$1" ] || die "$1 is no block device"
  [ "$(blockdev --getsize64 "$1")" -ge "$2" ] || die "$1 is smaller than $2 bytes"
  held=$(wipefs --no-act "$1") || die "$1 cannot be read, or is in use"
  [ -z "$held" ] || die "$1 holds something (see: wipefs $1); clear it yourself if that may go"
}

# MOUNTPOINT: a file system that can be unmounted and mounted again.
check_mounted() {
  [ -n "$1" ] || die "a variable at the top of this script is not set: name the mount point"
  mountpoint -q "$1" || die "$1 is no mount point"
  [ "$(readlink -f "$1")" != / ] || die "the root file system cannot be moved while it is in use"
  [ -b "$(source_of "$1")" ] || die "$1 is on no block device: it could not be mounted again"
  [ "$(findmnt -rn -o TARGET -R "$1" | wc -l)" = 1 ] || die "other file systems are mounted below $1"
}

source_of() {
  findmnt -n -o SOURCE -M "$1"
}

# Names of devices change from boot to boot; this does not.
uuid_of() {
  blkid -o value -s UUID "$1" || die "$1 has no UUID"
}

device_of() {
  blkid -U "$1" || die "there is no device with UUID $1"
}

# MOUNTPOINT: of its options those that every file system takes.
options_of() {
  kept=rw
  for option in $(findmnt -n -o OPTIONS -M "$1" | tr , ' '); do
    case $option in
      nosuid | nodev | noexec | noatime | nodiratime | relatime) kept=$kept,$option ;;
    esac
  done
  printf %s "$kept"
}

# MOUNTPOINT: nothing is written there from here on. Fails while a program has a file open for writing.
hold_still() {
  mount -o remount,ro "$1" || die "$1 is in use: stop the programs that write there"
}

# DIRECTORY FILE: describes all that is in it: names, kinds, owners, times, links, contents.
describe() {
  (
    cd "$1"
    find . -xdev -path ./lost+found -prune -o -type d -printf '%y %m %U %G %p\0' \
      -o -printf '%y %m %U %G %n %s %T@ %l %p\0' >"$2.entries"
    find . -xdev -path ./lost+found -prune -o -type f -print0 >"$2.files"
    LC_ALL=C sort -z "$2.entries" >"$2"
    LC_ALL=C sort -z "$2.files" >"$2.sorted"
    xargs -0 -r sha256sum -- <"$2.sorted" >>"$2"
  )
}

# DIRECTORY DIRECTORY: both hold the same, and the second one's is read from its device.
compare() {
  sync -f "$2/."
  describe "$1" "$WORK/one"
  describe "$2" "$WORK/two"
  cmp -s "$WORK/one" "$WORK/two" || die "the copy in $2 is not like $1"
}

# DIRECTORY DIRECTORY BYTES INODES: the second has room for what the first holds, and a twentieth more. BYTES and INODES
# are df's names of the room: what is free, or all there is where everything is replaced.
check_room() {
  used=$(df -B1 --output=used "$1" | tail -n 1 | tr -d ' ')
  there=$(df -B1 --output="$3" "$2" | tail -n 1 | tr -d ' ')
  needed=$((used + used / 20 + 1048576))
  [ "$there" -ge "$needed" ] || die "$1 needs $needed bytes, and there is room for $there: take a larger device"
  files=$(find "$1" -xdev | wc -l)
  inodes=$(df --output="$4" "$2" | tail -n 1 | tr -d ' -')
  [ -z "$inodes" ] || [ "$inodes" -ge $((files + files / 20)) ] || die "there is no room for $files files"
}

# DEVICE MOUNTPOINT JOURNAL_MIB: copies the files to a file system of their own, compares, and only then switches.
move_files() {
  old=$(source_of "$2")
  type=$(findmnt -n -o FSTYPE -M "$2")
  before=$(findmnt -n -o FS-OPTIONS,VFS-OPTIONS -M "$2" | tr -s ' ' ,)
  options=$(options_of "$2")
  [ "$old" != "$1" ] || die "$2 is on $1 already"
  take_back_with "wipefs -aq $(quote "$1")"
  old_uuid=$(uuid_of "$old")
  mkfs.ext4 -q -m 0 -I 256 -J "size=$3" "$1"
  fast_uuid=$(uuid_of "$1")
  hold_still "$2"
  case ",$before," in
    *,ro,*) ;;
    *) take_back_with "mount -o remount,rw $(quote "$2")" ;;
  esac
  mount "$1" "$WORK/other"
  take_back_with "if mountpoint -q $(quote "$WORK/other"); then umount $(quote "$WORK/other"); fi"
  check_room "$2" "$WORK/other" avail iavail
  cp -a "$2/." "$WORK/other/"
  umount "$WORK/other"
  mount -o ro "$1" "$WORK/other"
  compare "$2" "$WORK/other"
  umount "$WORK/other"
  umount "$2" || die "$2 is in use: stop the programs that read there"
  take_back_with "mount -t $type $(quote "$old") $(quote "$2")"
  mount -o "$options" "$1" "$2"
  take_back_with "umount $(quote "$2")"
  undo_with "move_back $fast_uuid $(quote "$2") $old_uuid $type"
  echo "$2 is on $1 now; $old has everything as it was, and is not mounted."
  echo "Until /etc/fstab says so, the next boot mounts the old one, and what is written from now on is not there:"
  echo "  UUID=$fast_uuid $2 ext4 $options 0 2"
}

# UUID MOUNTPOINT OLD_UUID TYPE: what was written meanwhile goes to the old device; compared before it is switched.
move_back() {
  fast=$(device_of "$1")
  old=$(device_of "$3")
  [ "$(source_of "$2")" = "$fast" ] || die "$2 is not on $fast"
  hold_still "$2"
  take_back_with "mount -o remount,rw $(quote "$2")"
  mount -t "$4" "$old" "$WORK/other"
  take_back_with "if mountpoint -q $(quote "$WORK/other"); then umount $(quote "$WORK/other"); fi"
  describe "$2" "$WORK/one"
  describe "$WORK/other" "$WORK/two"
  if ! cmp -s "$WORK/one" "$WORK/two"; then
    check_room "$2" "$WORK/other" size itotal
    (cd "$WORK/other" && find . -xdev -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf --one-file-system {} +)
    cp -a "$2/." "$WORK/other/"
    compare "$2" "$WORK/other"
  fi
  umount "$WORK/other"
  umount "$2" || die "$2 is in use: stop the programs that read there"
  take_back_with "mount $(quote "$fast") $(quote "$2")"
  mount -t "$4" "$old" "$2"
  TAKE_BACK=
  echo "$2 is on $old again; $fast still holds a copy. Take the line for $fast out of /etc/fstab."
}

# DEVICE: swap that is filled before any other.
swap_first() {
  take_back_with "wipefs -aq $(quote "$1")"
  mkswap "$1" >/dev/null
  swapon --priority 100 "$1"
  take_back_with "swapoff $(quote "$1")"
  undo_with "swapoff $(quote "$1")"
  echo "Swap is on $1 first now. To have it after the next boot, put into /etc/fstab:"
  echo "  UUID=$(blkid -o value -s UUID "$1") none swap pri=100 0 0"
}

# What a field of a file system's description says.
described() {
  dumpe2fs -h "$1" 2>/dev/null | sed -n "s/^$2: *//p"
}

# FILESYSTEM: sound, repaired where that is safe.
check_sound() {
  code=0
  e2fsck -f -p "$1" >/dev/null || code=$?
  [ "$code" -le 1 ] || die "e2fsck says that $1 is not sound (exit code $code)"
}

# MOUNTPOINT: its journal can be put elsewhere.
check_journal() {
  check_mounted "$1"
  for tool in tune2fs dumpe2fs e2fsck mke2fs; do
    command -v "$tool" >/dev/null || die "$tool is not installed"
  done
  case $(findmnt -n -o FSTYPE -M "$1") in
    ext3 | ext4) ;;
    *) die "$1 is neither ext3 nor ext4: its journal cannot be put elsewhere by this script" ;;
  esac
  case $(described "$(source_of "$1")" 'Filesystem features') in
    *has_journal*) ;;
    *) die "$1 has no journal" ;;
  esac
}

# DEVICE MOUNTPOINT BYTES: the file system's journal goes to a device of its own.
move_journal() {
  old=$(source_of "$2")
  type=$(findmnt -n -o FSTYPE -M "$2")
  options=$(findmnt -n -o OPTIONS -M "$2")
  block=$(described "$old" 'Block size')
  uuid=$(described "$old" 'Journal UUID')
  if [ -n "$uuid" ]; then
    journal="device=UUID=$uuid"
  else
    # As large as it was.
    bytes=$(described "$old" 'Total journal size' | sed 's/k$/*1024/; s/M$/*1048576/; s/G$/*1073741824/')
    journal="size=$(((${bytes:-67108864}) / 1048576))"
  fi
  take_back_with "wipefs -aq $(quote "$1")"
  mke2fs -q -b "$block" -O journal_dev "$1" "$(($3 / block))"
  umount "$2" || die "$2 is in use: stop the programs that use it"
  take_back_with "mount -t $type -o $(quote "$options") $(quote "$old") $(quote "$2")"
  check_sound "$old"
  give_journal "$old" "device=$1" "$journal"
  mount -t "$type" -o "$options" "$old" "$2"
  take_back_with "umount $(quote "$2")"
  undo_with "move_journal_back $(quote "$2") $(quote "$old") $type $(quote "$journal")"
  echo "The journal of $2 is on $1 now; without $1 the file system cannot be mounted. /etc/fstab stays as it is."
}

# FILESYSTEM JOURNAL OLD: a journal in place of another one, which comes back if that fails.
give_journal() {
  tune2fs -O ^has_journal "$1" >/dev/null
  take_back_with "tune2fs -O ^has_journal $(quote "$1") >/dev/null; tune2fs -J $(quote "$3") $(quote "$1") >/dev/null"
  tune2fs -J "$2" "$1" >/dev/null
  check_sound "$1"
}

# MOUNTPOINT FILESYSTEM TYPE JOURNAL: the journal that was there before.
move_journal_back() {
  [ "$(source_of "$1")" = "$2" ] || die "$1 is not on $2"
  options=$(findmnt -n -o OPTIONS -M "$1")
  now="device=UUID=$(described "$2" 'Journal UUID')"
  umount "$1" || die "$1 is in use: stop the programs that use it"
  take_back_with "mount -t $3 -o $(quote "$options") $(quote "$2") $(quote "$1")"
  check_sound "$2"
  give_journal "$2" "$4" "$now"
  mount -t "$3" -o "$options" "$2" "$1"
  TAKE_BACK=
  echo "The journal of $1 is where it was."
}

# VOLUME (as VG/LV): a logical volume that has no cache yet.
check_volume() {
  for tool in lvs vgs pvcreate vgextend lvcreate lvconvert; do
    command -v "$tool" >/dev/null || die "$tool is not installed: caches are made by lvm2"
  done
  case $1 in
    */*) ;;
    *) die "name the slow logical volume as VG/LV" ;;
  esac
  kind=$(lvs --noheadings -o segtype "$1") || die "$1 is no logical volume"
  case $kind in
    *cache*) die "$1 has a cache already" ;;
  esac
}

# DEVICE VOLUME MODE: a cache on a device, before a logical volume; the volume stays in use meanwhile.
add_cache() {
  group=${2%/*}
  take_back_with "pvremove -y $(quote "$1")"
  pvcreate "$1"
  vgextend "$group" "$1"
  take_back_with "vgreduce $(quote "$group") $(quote "$1")"
  lvcreate -y -n waystation_cache -l 100%PVS "$group" "$1"
  take_back_with "lvremove -y $(quote "$group/waystation_cache")"
  lvconvert -y --type cache --cachevol "$group/waystation_cache" --cachemode "$3" "$2"
  take_back_with "lvconvert -y --uncache $(quote "$2")"
  undo_with "lvconvert -y --uncache $(quote "$2"); vgreduce $(quote "$group") $(quote "$1"); pvremove -y $(quote "$1")"
  echo "$2 has a $3 cache on $1 now."
}

# Writes the script that undoes all that was done. Until that is written, a failure takes everything back.
finish() {
  {
    echo '#!/bin/sh'
    echo '# Undoes a placement. It stops at the first failure, and then everything stays where it is.'
    echo 'set -eu'
    library
    echo begin
    printf %s "$LATER"
  } >"$UNDO"
  sync "$UNDO"
  TAKE_BACK=
  echo "To undo all of this: sh $UNDO"
}
