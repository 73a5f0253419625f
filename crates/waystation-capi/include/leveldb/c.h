/* The C interface of LevelDB 1.23, as Waystation serves it.
 *
 * Programs written for LevelDB compile and link unchanged. All 68 functions are here; where one of them does
 * something else than in LevelDB, a line above it says so. What LevelDB does not have is in <waystation/c.h>.
 *
 * Errors. A function with `char** errptr` tells of a failure by a text: *errptr must be NULL or a text from malloc
 * before the call; on failure it is freed and replaced, on success it is left alone. The text begins with
 * "NotFound: ", "Corruption: ", "Not implemented: ", "Invalid argument: " or "IO error: ".
 *
 * Memory. Values, texts and property strings that a function returns are the caller's, to be freed by leveldb_free
 * or free. Keys and values of a cursor are the cursor's and count until it moves. Handles go back by the _destroy,
 * _close or _release that belongs to them. Options borrow what is set in them: a comparator, a filter policy, a
 * cache and an environment may be destroyed once the database is closed, a snapshot once it is set no more.
 *
 * Threads. A database and its snapshots serve any number of threads at once; a cursor or a batch serves one at a
 * time. All cursors of a database are destroyed before it is closed; one that is left goes on reading, and until it
 * is destroyed the database cannot be opened again.
 */
#ifndef WAYSTATION_LEVELDB_C_H
#define WAYSTATION_LEVELDB_C_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(LEVELDB_EXPORT)
#define LEVELDB_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct leveldb_t leveldb_t;
typedef struct leveldb_cache_t leveldb_cache_t;
typedef struct leveldb_comparator_t leveldb_comparator_t;
typedef struct leveldb_env_t leveldb_env_t;
typedef struct leveldb_filelock_t leveldb_filelock_t;
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;
typedef struct leveldb_iterator_t leveldb_iterator_t;
typedef struct leveldb_logger_t leveldb_logger_t;
typedef struct leveldb_options_t leveldb_options_t;
typedef struct leveldb_randomfile_t leveldb_randomfile_t;
typedef struct leveldb_readoptions_t leveldb_readoptions_t;
typedef struct leveldb_seqfile_t leveldb_seqfile_t;
typedef struct leveldb_snapshot_t leveldb_snapshot_t;
typedef struct leveldb_writablefile_t leveldb_writablefile_t;
typedef struct leveldb_writebatch_t leveldb_writebatch_t;
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

/* ---- Databases ---- */

/* NULL on failure. A directory of LevelDB's is opened in place; LevelDB cannot open it until it was closed. Where a
 * database is created, so are the directories above it. */
LEVELDB_EXPORT leveldb_t* leveldb_open(
    const leveldb_options_t* options, const char* name, char** errptr);

/* Takes longer than LevelDB's: what is in memory goes to tables, so that LevelDB can open the directory next. */
LEVELDB_EXPORT void leveldb_close(leveldb_t* db);

/* A key has at most 1 MiB, a value 256 MiB, a batch 512 MiB; more is an invalid argument. */
LEVELDB_EXPORT void leveldb_put(
    leveldb_t* db, const leveldb_writeoptions_t* options,
    const char* key, size_t keylen, const char* val, size_t vallen, char** errptr);

LEVELDB_EXPORT void leveldb_delete(
    leveldb_t* db, const leveldb_writeoptions_t* options,
    const char* key, size_t keylen, char** errptr);

LEVELDB_EXPORT void leveldb_write(
    leveldb_t* db, const leveldb_writeoptions_t* options,
    leveldb_writebatch_t* batch, char** errptr);

/* NULL and *vallen = 0 if there is no such key, and also on failure; an empty value is not NULL. */
LEVELDB_EXPORT char* leveldb_get(
    leveldb_t* db, const leveldb_readoptions_t* options,
    const char* key, size_t keylen, size_t* vallen, char** errptr);

LEVELDB_EXPORT leveldb_iterator_t* leveldb_create_iterator(
    leveldb_t* db, const leveldb_readoptions_t* options);

LEVELDB_EXPORT const leveldb_snapshot_t* leveldb_create_snapshot(leveldb_t* db);

LEVELDB_EXPORT void leveldb_release_snapshot(leveldb_t* db, const leveldb_snapshot_t* snapshot);

/* "leveldb.num-files-at-level<N>", "leveldb.stats", "leveldb.sstables", "leveldb.approximate-memory-usage", and
 * "waystation.stats" (JSON); NULL for any other. */
LEVELDB_EXPORT char* leveldb_property_value(leveldb_t* db, const char* propname);

LEVELDB_EXPORT void leveldb_approximate_sizes(
    leveldb_t* db, int num_ranges,
    const char* const* range_start_key, const size_t* range_start_key_len,
    const char* const* range_limit_key, const size_t* range_limit_key_len, uint64_t* sizes);

LEVELDB_EXPORT void leveldb_compact_range(
    leveldb_t* db, const char* start_key, size_t start_key_len,
    const char* limit_key, size_t limit_key_len);

/* ---- Databases that are not open ---- */

LEVELDB_EXPORT void leveldb_destroy_db(
    const leveldb_options_t* options, const char* name, char** errptr);

/* Afterwards the directory holds a database that opens and checks, with all that could be read; the files from before are
 * in a new directory beside it, NAME.before-repair. Nothing is done to a database that is sound. As with LevelDB, deleted
 * or older values may come back if the MANIFEST or a part of the log is lost. If the files are lost that tell of deletions
 * (GRAVES, DEVICES), the repair is refused: see waystation_repair_json. */
LEVELDB_EXPORT void leveldb_repair_db(
    const leveldb_options_t* options, const char* name, char** errptr);

/* ---- Cursors ---- */

LEVELDB_EXPORT void leveldb_iter_destroy(leveldb_iterator_t*);
LEVELDB_EXPORT uint8_t leveldb_iter_valid(const leveldb_iterator_t*);
LEVELDB_EXPORT void leveldb_iter_seek_to_first(leveldb_iterator_t*);
LEVELDB_EXPORT void leveldb_iter_seek_to_last(leveldb_iterator_t*);
LEVELDB_EXPORT void leveldb_iter_seek(leveldb_iterator_t*, const char* k, size_t klen);
/* A cursor that is on no entry stays there; LevelDB forbids these two then. */
LEVELDB_EXPORT void leveldb_iter_next(leveldb_iterator_t*);
LEVELDB_EXPORT void leveldb_iter_prev(leveldb_iterator_t*);
/* No bytes if the cursor is on no entry; LevelDB forbids these two then. */
LEVELDB_EXPORT const char* leveldb_iter_key(const leveldb_iterator_t*, size_t* klen);
LEVELDB_EXPORT const char* leveldb_iter_value(const leveldb_iterator_t*, size_t* vlen);
LEVELDB_EXPORT void leveldb_iter_get_error(const leveldb_iterator_t*, char** errptr);

/* ---- Batches ---- */

/* What would make a batch longer than 1 GiB is not taken, and the batch is an invalid argument when it is written. */
LEVELDB_EXPORT leveldb_writebatch_t* leveldb_writebatch_create(void);
LEVELDB_EXPORT void leveldb_writebatch_destroy(leveldb_writebatch_t*);
LEVELDB_EXPORT void leveldb_writebatch_clear(leveldb_writebatch_t*);
LEVELDB_EXPORT void leveldb_writebatch_put(
    leveldb_writebatch_t*, const char* key, size_t klen, const char* val, size_t vlen);
LEVELDB_EXPORT void leveldb_writebatch_delete(leveldb_writebatch_t*, const char* key, size_t klen);
LEVELDB_EXPORT void leveldb_writebatch_iterate(
    const leveldb_writebatch_t*, void* state,
    void (*put)(void*, const char* k, size_t klen, const char* v, size_t vlen),
    void (*deleted)(void*, const char* k, size_t klen));
LEVELDB_EXPORT void leveldb_writebatch_append(
    leveldb_writebatch_t* destination, const leveldb_writebatch_t* source);

/* ---- Options ---- */

/* create_if_missing is off, as in LevelDB; sizes that are not set are Waystation's own. */
LEVELDB_EXPORT leveldb_options_t* leveldb_options_create(void);
LEVELDB_EXPORT void leveldb_options_destroy(leveldb_options_t*);
/* The order of keys; NULL for that of their bytes. The database remembers its name. Any thread may call the function
 * until the database is closed. One named "leveldb.BytewiseComparator" is taken for that order, and never called. With
 * another name there are no filters, no devices, no times to live and no prefixes: all of these are of bytes.
 * leveldb_repair_db of such a database fails. */
LEVELDB_EXPORT void leveldb_options_set_comparator(leveldb_options_t*, leveldb_comparator_t*);
/* Sets the bits a key of the filters, which there are in any case (10 bits) where keys are in the order of their bytes.
 * A policy of the program's own is
 * taken and never asked: filters change no result. */
LEVELDB_EXPORT void leveldb_options_set_filter_policy(leveldb_options_t*, leveldb_filterpolicy_t*);
LEVELDB_EXPORT void leveldb_options_set_create_if_missing(leveldb_options_t*, uint8_t);
LEVELDB_EXPORT void leveldb_options_set_error_if_exists(leveldb_options_t*, uint8_t);
/* Without effect: everything is checked always. */
LEVELDB_EXPORT void leveldb_options_set_paranoid_checks(leveldb_options_t*, uint8_t);
/* Without effect: there is the default environment alone. */
LEVELDB_EXPORT void leveldb_options_set_env(leveldb_options_t*, leveldb_env_t*);
/* Without effect, as no function makes a logger. */
LEVELDB_EXPORT void leveldb_options_set_info_log(leveldb_options_t*, leveldb_logger_t*);
LEVELDB_EXPORT void leveldb_options_set_write_buffer_size(leveldb_options_t*, size_t);
LEVELDB_EXPORT void leveldb_options_set_max_open_files(leveldb_options_t*, int);
/* Every database has a cache of this size for itself. */
LEVELDB_EXPORT void leveldb_options_set_cache(leveldb_options_t*, leveldb_cache_t*);
LEVELDB_EXPORT void leveldb_options_set_block_size(leveldb_options_t*, size_t);
/* Without effect: restarts are every 16 entries. */
LEVELDB_EXPORT void leveldb_options_set_block_restart_interval(leveldb_options_t*, int);
LEVELDB_EXPORT void leveldb_options_set_max_file_size(leveldb_options_t*, size_t);

enum { leveldb_no_compression = 0, leveldb_snappy_compression = 1 };
/* 2 is zstd, as in LevelDB after 1.23; LevelDB 1.23 itself cannot read that. */
LEVELDB_EXPORT void leveldb_options_set_compression(leveldb_options_t*, int);

/* ---- What a program brings along ---- */

LEVELDB_EXPORT leveldb_comparator_t* leveldb_comparator_create(
    void* state, void (*destructor)(void*),
    int (*compare)(void*, const char* a, size_t alen, const char* b, size_t blen),
    const char* (*name)(void*));
LEVELDB_EXPORT void leveldb_comparator_destroy(leveldb_comparator_t*);

LEVELDB_EXPORT leveldb_filterpolicy_t* leveldb_filterpolicy_create(
    void* state, void (*destructor)(void*),
    char* (*create_filter)(void*, const char* const* key_array, const size_t* key_length_array,
                           int num_keys, size_t* filter_length),
    uint8_t (*key_may_match)(void*, const char* key, size_t length,
                             const char* filter, size_t filter_length),
    const char* (*name)(void*));
LEVELDB_EXPORT void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t*);
LEVELDB_EXPORT leveldb_filterpolicy_t* leveldb_filterpolicy_create_bloom(int bits_per_key);

LEVELDB_EXPORT leveldb_cache_t* leveldb_cache_create_lru(size_t capacity);
LEVELDB_EXPORT void leveldb_cache_destroy(leveldb_cache_t* cache);

/* ---- Options of reads and writes ---- */

LEVELDB_EXPORT leveldb_readoptions_t* leveldb_readoptions_create(void);
LEVELDB_EXPORT void leveldb_readoptions_destroy(leveldb_readoptions_t*);
/* Without effect: checksums are verified always. */
LEVELDB_EXPORT void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t*, uint8_t);
/* Without effect: long scans leave the cache alone by themselves. */
LEVELDB_EXPORT void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t*, uint8_t);
LEVELDB_EXPORT void leveldb_readoptions_set_snapshot(
    leveldb_readoptions_t*, const leveldb_snapshot_t*);

LEVELDB_EXPORT leveldb_writeoptions_t* leveldb_writeoptions_create(void);
LEVELDB_EXPORT void leveldb_writeoptions_destroy(leveldb_writeoptions_t*);
/* On: a write that returns survives a power loss. Off: it survives the death of the process. */
LEVELDB_EXPORT void leveldb_writeoptions_set_sync(leveldb_writeoptions_t*, uint8_t);

/* ---- The environment, and the library itself ---- */

LEVELDB_EXPORT leveldb_env_t* leveldb_create_default_env(void);
LEVELDB_EXPORT void leveldb_env_destroy(leveldb_env_t*);
LEVELDB_EXPORT char* leveldb_env_get_test_directory(leveldb_env_t*);

LEVELDB_EXPORT void leveldb_free(void* ptr);
LEVELDB_EXPORT int leveldb_major_version(void);
LEVELDB_EXPORT int leveldb_minor_version(void);

#ifdef __cplusplus
}
#endif

#endif
