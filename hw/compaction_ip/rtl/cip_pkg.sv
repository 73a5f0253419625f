// What the units of the compaction engine say to each other: widths, types, codes and registers.
//
// The sources keep to what Yosys 0.23 reads. It reads a package's structs and enums by their full name, but neither
// imports, arrays of structs, `$bits` of a type, nor casts to a type. Hence three rules:
//   - What each input has of its own travels as one flat vector, a struct's width for each input.
//   - A memory is declared as plain vectors and read into a struct; of a package's type it would become registers.
//   - A struct's width stands beside it; compaction_ip compares the two in simulation.
package cip_pkg;

  // ---- Words of memory and of all streams: byte 0 is in the lowest lane.
  localparam int unsigned WordBytes = 8;
  localparam int unsigned WordWidth = 8 * WordBytes;
  localparam int unsigned LaneWidth = 3;
  localparam int unsigned LaneCountWidth = LaneWidth + 1;
  typedef logic [WordWidth-1:0] word_t;
  typedef logic [LaneWidth-1:0] lane_t;             // a byte of a word
  typedef logic [LaneCountWidth-1:0] lane_count_t;  // 0 to 8 of them

  // ---- Memory: bursts of up to 16 words that never leave their 128 bytes.
  localparam int unsigned AddrWidth = 32;
  localparam int unsigned WordAddrWidth = AddrWidth - LaneWidth;
  localparam int unsigned BeatWidth = 4;
  localparam int unsigned BurstCountWidth = BeatWidth + 1;
  localparam logic [BurstCountWidth-1:0] BurstWords = 5'd16;
  typedef logic [AddrWidth-1:0] addr_t;
  typedef logic [WordAddrWidth-1:0] word_addr_t;
  typedef logic [BeatWidth-1:0] beat_t;                // a word of a burst
  typedef logic [BurstCountWidth-1:0] burst_count_t;   // 0 to 16 of them

  typedef struct packed {
    addr_t addr;
    beat_t beats_less_one;
  } burst_t;

  // The engine's side of the memory port, and memory's. AXI's rules: valid waits for no ready; reads come in order.
  // Answers to writes are always taken.
  typedef struct packed {
    logic   ar_valid;
    burst_t ar;
    logic   r_ready;
    logic   aw_valid;
    burst_t aw;
    logic   w_valid;
    word_t  w_data;
    logic   w_last;
  } mem_req_t;

  typedef struct packed {
    logic  ar_ready;
    logic  r_valid;
    word_t r_data;
    logic  r_error;
    logic  aw_ready;
    logic  w_ready;
    logic  b_valid;
    logic  b_error;
  } mem_rsp_t;

  // ---- Inputs.
  localparam int unsigned NumInputsMax = 13;
  localparam int unsigned InputIdWidth = 4;
  localparam int unsigned InputSlots = 2 ** InputIdWidth;  // of memories that input numbers address
  typedef logic [InputIdWidth-1:0] input_id_t;
  typedef logic [InputSlots-1:0] input_mask_t;
  localparam logic [InputIdWidth-1:0] NoInput = '1;
  // Words in an input's queue, and in the buffer of what is packed.
  localparam int unsigned QueueDepthBits = 9;

  // ---- Blocks: contents, a type byte, and a checksum. Sums of lengths have one bit more.
  localparam int unsigned BlockLengthWidth = 24;
  localparam int unsigned BlockSumWidth = BlockLengthWidth + 1;
  localparam int unsigned BlockWordsWidth = BlockSumWidth - LaneWidth;
  typedef logic [BlockLengthWidth-1:0] block_length_t;
  typedef logic [BlockSumWidth-1:0] block_sum_t;
  typedef logic [BlockWordsWidth-1:0] block_words_t;
  localparam int unsigned CrcWidth = 32;
  typedef logic [CrcWidth-1:0] crc_t;
  localparam logic [CrcWidth-1:0] CrcMask = 32'ha282ead8;  // LevelDB adds it to a rotated checksum
  localparam int unsigned RestartIndexWidth = 6;
  localparam int unsigned RestartCountWidth = RestartIndexWidth + 1;
  localparam logic [RestartCountWidth-1:0] RestartsMax = 7'd64;    // of an output block
  typedef logic [RestartCountWidth-1:0] restart_count_t;
  localparam logic [BlockSumWidth-1:0] RestartBytes = 25'd4;       // a restart point, and their number
  localparam logic [BlockSumWidth-1:0] TypeAndCrcBytes = 25'd5;    // what follows a block's contents
  localparam logic [BlockSumWidth-1:0] TrailerRounded = 25'd12;    // and 7 more, for a length in words, rounded up

  // ---- Records. User keys have up to 64 bytes; a trailer of eight, sequence and kind, makes them internal keys.
  localparam int unsigned SequenceWidth = 56;
  localparam int unsigned UserLengthWidth = 7;
  localparam int unsigned KeyLengthWidth = UserLengthWidth + 1;
  localparam int unsigned ValueLengthWidth = 21;
  typedef logic [SequenceWidth-1:0] sequence_t;
  typedef logic [UserLengthWidth-1:0] user_length_t;
  typedef logic [KeyLengthWidth-1:0] key_length_t;
  typedef logic [ValueLengthWidth-1:0] value_length_t;
  localparam logic [UserLengthWidth-1:0] UserTrailerBytes = 7'd8;
  localparam logic [KeyLengthWidth-1:0] KeyTrailerBytes = 8'd8;
  localparam logic [KeyLengthWidth-1:0] KeyBytesMax = 8'd72;

  typedef struct packed {
    sequence_t  number;
    logic [7:0] kind;
  } trailer_t;
  localparam logic [7:0] KindDeletion = 8'd0;
  localparam logic [7:0] KindValue = 8'd1;

  // An entry's header: three lengths, seven bits to a byte. Keys are below 128 bytes here, so one byte is enough.
  typedef struct packed {
    logic       more;
    logic [6:0] digits;
  } varint_byte_t;
  typedef struct packed {
    varint_byte_t value_high;
    varint_byte_t value_middle;
    varint_byte_t value_low;
    varint_byte_t unshared;
    varint_byte_t shared;
  } entry_header_t;
  localparam int unsigned EntryHeaderBytes = 5;
  localparam int unsigned EntryHeaderWidth = 8 * EntryHeaderBytes;

  // A word of a key, first byte uppermost, zeros behind its end, and how many of its bytes belong to the key: `MoreWords`
  // if all do and more words follow. So unsigned comparison of successive words orders user keys. The trailer follows
  // them, inverted, with a count of 0, so that newer versions come first.
  typedef struct packed {
    word_t       bytes;
    lane_count_t count;
  } key_word_t;
  localparam int unsigned KeyWordWidth = WordWidth + LaneCountWidth;
  localparam logic [LaneCountWidth-1:0] MoreWords = 4'd9;
  // A slot holds a key's words: nine with the trailer, of 16 places. Two slots lie side by side.
  localparam int unsigned KeyIndexWidth = 4;
  localparam int unsigned SlotAddrWidth = KeyIndexWidth + 1;
  localparam int unsigned SlotWords = 2 ** KeyIndexWidth;
  typedef logic [KeyIndexWidth-1:0] key_index_t;
  typedef logic [SlotAddrWidth-1:0] slot_addr_t;

  // ---- The walker's blocks, for the issuer.
  typedef struct packed {
    logic          is_end;  // no block: the input ends
    block_length_t length;
    addr_t         addr;
  } block_ref_t;
  localparam int unsigned BlockRefWidth = 1 + BlockLengthWidth + AddrWidth;

  // ---- Bursts under way, for the read return.
  typedef enum logic [1:0] {
    FetchDescriptor,
    FetchTail,        // a block's last five bytes of contents and type, ahead of the block
    FetchBody,        // the block
    FetchEnd          // nothing: the input ends
  } fetch_kind_e;
  typedef struct packed {
    block_sum_t  extent;  // the block's length; of a body from its first word's lane 0 on
    logic        last;
    logic        first;
    beat_t       beats;   // 0 for 16
    input_id_t   id;
    fetch_kind_e kind;
    lane_t       lane;    // where the block begins
  } fetch_t;
  localparam int unsigned FetchWidth = BlockSumWidth + 2 + BeatWidth + InputIdWidth + 2 + LaneWidth;

  // The word that opens a block in an input's queue.
  typedef struct packed {
    logic          is_end;
    block_length_t entry_bytes;
    block_words_t  words;
    lane_t         lane;
  } block_open_t;
  localparam int unsigned BlockOpenWidth = 1 + BlockLengthWidth + BlockWordsWidth + LaneWidth;

  // ---- Descriptors, as they come back to the walker.
  typedef struct packed {
    word_addr_t word_addr;
    logic       is_table;
  } desc_req_t;
  typedef struct packed {
    word_t data;
    logic  last;
    logic  crc_good;
  } desc_rsp_t;

  // ---- What the merger sees of an input: its oldest record, of whose key one word at a time.
  typedef struct packed {
    logic          exhausted;  // no record will come
    value_length_t value_length;
    key_word_t     word;
  } head_t;
  localparam int unsigned HeadWidth = 1 + ValueLengthWidth + KeyWordWidth;

  // ---- The record that comes first, word by word.
  typedef struct packed {
    logic          word_valid;
    logic          is_trailer;
    key_word_t     word;
    input_id_t     source;
    value_length_t value_length;  // valid with the trailer
  } record_t;

  // ---- What the encoder does with a record, or at the end.
  typedef struct packed {
    logic          is_record;      // else: write what is in the block, if `cut`, and end
    logic          drop;
    logic          cut;            // the block ends behind this record
    logic          first;          // the block begins with it
    logic          restart;
    logic          slot;           // where its key lies
    input_id_t     source;
    user_length_t  shared;
    user_length_t  user_length;
    lane_t         header_bytes;
    lane_count_t   head_bytes;     // header and key bytes of the first chunk
    lane_count_t   head_key;       // the key bytes among them
    lane_count_t   next_key;       // key bytes of the second chunk
    user_length_t  rest_key;       // and of all that follow
    value_length_t value_length;
    block_length_t offset;         // where it begins in the block
    block_sum_t    block_length;   // the block's, once it is cut behind this record
    block_length_t entries;
  } command_t;

  // ---- One to eight bytes of output.
  typedef struct packed {
    word_t       data;
    lane_count_t bytes;
    logic        begins;  // a block begins here
    logic        ends;    // a block's type and room for its checksum
    logic        flush;   // the last of all
  } chunk_t;

  // ---- A finished block, for the index.
  typedef struct packed {
    addr_t         offset;
    block_sum_t    length;
    block_length_t entries;
    logic          slot;  // where its last key lies
    user_length_t  user_length;
  } block_t;

  // ---- Failures. The numbers are those of `FailureKind` in crates/waystation-drive/src/ip/job.rs.
  typedef enum logic [3:0] {
    ErrNone            = 4'd0,
    ErrBus             = 4'd1,
    ErrDescriptorCrc   = 4'd2,
    ErrDescriptorField = 4'd3,
    ErrBlockType       = 4'd4,
    ErrBlockCrc        = 4'd5,
    ErrRestarts        = 4'd6,
    ErrKey             = 4'd7,
    ErrEntry           = 4'd8,
    ErrOrder           = 4'd9,
    ErrKind            = 4'd10,
    ErrSpace           = 4'd11,
    ErrWatchdog        = 4'd12
  } error_code_e;
  typedef struct packed {
    error_code_e code;
    input_id_t   id;
  } error_t;

  // ---- Registers. From 0x80 on two an input: its list of tables, and how many they are.
  localparam int unsigned CsrAddrWidth = 8;
  localparam int unsigned CsrWidth = 32;
  typedef logic [CsrAddrWidth-1:0] csr_addr_t;
  typedef logic [CsrWidth-1:0] csr_data_t;
  typedef struct packed {
    logic      write;
    csr_addr_t addr;
    csr_data_t data;
  } csr_req_t;
  localparam logic [CsrWidth-1:0] Identity = 32'h57434901;
  typedef enum logic [CsrAddrWidth-1:0] {
    CsrIdentity     = 8'h00,
    CsrCommand      = 8'h04,
    CsrStatus       = 8'h08,
    CsrFailure      = 8'h0c,
    CsrSnapshotLow  = 8'h10,
    CsrSnapshotHigh = 8'h14,
    CsrRules        = 8'h18,
    CsrBlockBytes   = 8'h1c,
    CsrOutBase      = 8'h20,
    CsrOutWords     = 8'h24,
    CsrIndexBase    = 8'h28,
    CsrIndexEntries = 8'h2c,
    CsrWatchdog     = 8'h30,
    CsrCycles       = 8'h40,
    CsrBytesIn      = 8'h44,
    CsrBlocksIn     = 8'h48,
    CsrRecordsIn    = 8'h4c,
    CsrShadowed     = 8'h50,
    CsrVanished     = 8'h54,
    CsrRecordsOut   = 8'h58,
    CsrBytesOut     = 8'h5c,
    CsrBlocksOut    = 8'h60,
    CsrChecked      = 8'h64,
    CsrWaitsMemory  = 8'h68,
    CsrWaitsHead    = 8'h6c,
    CsrWaitsFilter  = 8'h70,
    CsrWaitsValue   = 8'h74,
    CsrWaitsCommand = 8'h78,
    CsrWaitsWrite   = 8'h7c
  } csr_e;

  // A write to one of the inputs' registers.
  typedef struct packed {
    logic      valid;
    input_id_t id;
    logic      is_count;
    csr_data_t data;
  } list_write_t;

  // A job's settings: what becomes of records, and where the output goes.
  typedef struct packed {
    sequence_t      snapshot;          // the oldest that a reader may use
    logic           bottom;            // nothing lies deeper
    restart_count_t restart_interval;  // entries for each restart point
    block_length_t  block_bytes;
  } record_settings_t;
  typedef struct packed {
    addr_t         base;
    word_addr_t    words_max;
    addr_t         index_base;
    block_length_t index_entries_max;
  } out_settings_t;

  // What is counted: events of a cycle, and why a unit waits in it.
  typedef struct packed {
    logic       block_found;
    block_sum_t block_bytes;
    logic       block_checked;
    logic       shadowed;
    logic       vanished;
    logic       written;
  } events_t;
  typedef struct packed {
    logic memory;
    logic head;
    logic filter;
    logic value;
    logic command;
    logic write;
  } stalls_t;

  // The bytes of a word in the other order: a key word's first byte is uppermost, a stream's lowest.
  function automatic logic [WordWidth-1:0] reversed(input logic [WordWidth-1:0] word);
    for (int j = 0; j < WordBytes; j++) reversed[8*j+:8] = word[8*(WordBytes-1-j)+:8];
  endfunction

  // The words of a user key, hence also the place of its trailer in a slot. An empty key has one word, empty.
  function automatic logic [KeyIndexWidth-1:0] key_words(input logic [UserLengthWidth-1:0] user_length);
    key_words = user_length == '0 ? 4'd1 : KeyIndexWidth'((user_length + 7'd7) >> LaneWidth);
  endfunction

endpackage
