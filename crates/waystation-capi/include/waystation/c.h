/* What Waystation has beyond LevelDB's interface, on the same handles: include <leveldb/c.h> for those.
 *
 * Functions that can fail return a code and, on failure, put a text into *errptr by the rules of <leveldb/c.h>.
 * Texts that are returned are the caller's, to be freed by leveldb_free. */
#ifndef WAYSTATION_C_H
#define WAYSTATION_C_H

#include <leveldb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of an error. */
typedef enum {
  waystation_ok = 0,
  waystation_not_found = 1,        /* no such key, device or file */
  waystation_corruption = 2,       /* bytes on storage are not what was written */
  waystation_not_implemented = 3,  /* it cannot be done here */
  waystation_invalid_argument = 4, /* the call is wrong */
  waystation_io_error = 5,         /* the operating system refused */
  waystation_locked = 6,           /* another process has the database open */
  waystation_suspended = 7         /* no writes until the cause of a failure is gone; reads go on */
} waystation_code_t;

/* ---- Values and ranges ---- */

/* Copies as much of the value as fits to `buffer` and says in *vallen how long it is; no memory is allocated for the
 * caller. waystation_not_found, without a text, if there is no such key. */
waystation_code_t waystation_get_into(
    leveldb_t* db, const leveldb_readoptions_t* options, const char* key, size_t keylen,
    char* buffer, size_t capacity, size_t* vallen, char** errptr);

/* Writes a batch given as bytes in LevelDB's format (sequence number, count, operations). */
waystation_code_t waystation_write_bytes(
    leveldb_t* db, const leveldb_writeoptions_t* options,
    const char* batch, size_t batchlen, char** errptr);

/* A batch's bytes; they are the batch's and count until it changes. */
const char* waystation_writebatch_bytes(const leveldb_writebatch_t* batch, size_t* len);

/* A cursor over the keys from `lower` on and before `upper`; NULL for an open bound. */
leveldb_iterator_t* waystation_create_range_iterator(
    leveldb_t* db, const leveldb_readoptions_t* options,
    const char* lower, size_t lowerlen, const char* upper, size_t upperlen);

/* Puts `value` under `key` for so many milliseconds (more than 0): from then on there is no such key, unless it is put
 * again. The time is counted from now on, while the database is closed as well; setting the clock of the machine changes
 * nothing while it is open. */
waystation_code_t waystation_put_ttl(
    leveldb_t* db, const leveldb_writeoptions_t* options,
    const char* key, size_t keylen, const char* val, size_t vallen, int64_t milliseconds, char** errptr);

/* Deletes all keys from `start` on and before `end`, however many there are, in the time of one write; NULL for an
 * open end. */
waystation_code_t waystation_delete_range(
    leveldb_t* db, const leveldb_writeoptions_t* options,
    const char* start, size_t startlen, const char* end, size_t endlen, char** errptr);

/* Goes to the last key at or before `key`. */
void waystation_iter_seek_for_prev(leveldb_iterator_t* iterator, const char* key, size_t keylen);

/* ---- Files ---- */

/* Keeps copies of what is read most in a directory on a faster device, up to `capacity` bytes; at least 1 MiB. Nothing lies
 * there alone. Opening checks both values. */
void waystation_options_set_fast_directory(
    leveldb_options_t* options, const char* directory, uint64_t capacity);

/* Says that this directory survives what the main one survives: new segments of the log may lie there alone. Before it, the
 * directory has to be set; else this does nothing. */
void waystation_options_set_fast_durable(leveldb_options_t* options, unsigned char is_durable);

/* ---- Devices ---- */

/* Which part of a key names its device: "until/3a" for what is before the first ':', "fixed/8" for eight bytes. The
 * directory remembers it and is opened with no other. */
waystation_code_t waystation_options_set_device_extractor(
    leveldb_options_t* options, const char* name, char** errptr);

/* How long a device's data stays in the upper level before it settles into tables. */
void waystation_options_set_residency_ms(leveldb_options_t* options, uint64_t milliseconds);

/* All that the device wrote is gone, at once, for every reader without a snapshot or a cursor from before. */
waystation_code_t waystation_depart(
    leveldb_t* db, const char* device, size_t devicelen, char** errptr);

/* The device's data goes into tables now. */
waystation_code_t waystation_settle(
    leveldb_t* db, const char* device, size_t devicelen, char** errptr);

/* All devices that have data, as JSON; NULL on failure. */
char* waystation_devices_json(leveldb_t* db, char** errptr);

/* ---- Memory, storage, copies ---- */

/* As leveldb_close, and tells how it went. */
waystation_code_t waystation_close(leveldb_t* db, char** errptr);

/* Everything written so far survives a power loss. */
waystation_code_t waystation_sync(leveldb_t* db, char** errptr);

/* What is in memory goes to tables. */
waystation_code_t waystation_flush(leveldb_t* db, char** errptr);

/* Waits until no thread writes and neither flush nor compaction is due. */
waystation_code_t waystation_wait_idle(leveldb_t* db, char** errptr);

/* A copy in the new directory `target`, by hard links where they can be; writing goes on meanwhile. */
waystation_code_t waystation_checkpoint(leveldb_t* db, const char* target, char** errptr);

/* Adds a backup of the database as it is now to the directory `backups`, made if missing; what earlier ones there hold is
 * not copied again, and what is copied is verified. Writing goes on meanwhile. Its number, from 1, goes to *number unless
 * that is NULL. If it fails, earlier backups are as they were. */
waystation_code_t waystation_backup(
    leveldb_t* db, const char* backups, uint64_t* number, char** errptr);

/* A plain LevelDB database in the new directory `target`: 0 not compressed, 1 by snappy. */
waystation_code_t waystation_export_leveldb(
    leveldb_t* db, const char* target, int compression, char** errptr);

/* Reads every table in full: a report as JSON, whose "problems" are empty if all is well; NULL on failure. */
char* waystation_check_json(leveldb_t* db, char** errptr);

/* Figures as JSON; "failure" says why writes are suspended, if they are. NULL on failure. */
char* waystation_stats_json(leveldb_t* db, char** errptr);

/* ---- Repair, of a database that is not open ---- */

/* Saves all that can be read of the database `name`, whichever files of it are lost or damaged, to a database in the new
 * directory `target`: a report as JSON, with what is lost; NULL on failure. `name` is only read. Where deletions are lost
 * themselves, so that deleted or older values may come back, it fails and says why, unless `accept_resurrection`. */
char* waystation_repair_json(
    const leveldb_options_t* options, const char* name, const char* target,
    int accept_resurrection, char** errptr);

/* ---- Backups, without a database ---- */

/* The backups in a directory as JSON, the oldest first in "backups", and in "damaged" those that cannot be read; NULL on
 * failure. */
char* waystation_backups_json(const char* backups, char** errptr);

/* Reads every file of backup `number`, of all for 0, and compares it with what was written: a report as JSON, whose
 * "problems" are empty if all is well; NULL on failure. */
char* waystation_backups_verify_json(const char* backups, uint64_t number, char** errptr);

/* Removes all but the newest `keep` backups (1 at least), and the files that none of those needs. */
waystation_code_t waystation_backups_prune(const char* backups, size_t keep, char** errptr);

/* Writes backup `number`, the newest for 0, to the new directory `target`, which is a database when all of it is there and
 * verified, and not before. With devices it takes the place of the one that was backed up: two would both own the same devices. */
waystation_code_t waystation_restore(
    const char* backups, uint64_t number, const char* target, char** errptr);

#ifdef __cplusplus
}
#endif

#endif
