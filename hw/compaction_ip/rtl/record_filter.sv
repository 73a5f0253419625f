// Decides what becomes of a record, and how much of its key is written.
//
// LevelDB's two rules of dropping:
//   shadowed   an older version of the same user key, when a newer one is visible to the oldest snapshot already
//   vanished   a deletion visible to the oldest snapshot, when nothing deeper can hold the key (a setting of the job)
// A record that comes before its predecessor, or is of a kind we do not know, is an error of the input it came from.
// The key's words are compared as they pass: with the last key seen (for the rules) and with the last key written (for
// the shared prefix). User keys alone share: trailers are always written whole.
// The sizes decide where restarts and blocks begin, exactly as in LevelDB's block builder.
module record_filter (
    input  logic        clk,
    input  logic        reset,
    // settings of the job
    input  logic [55:0] snapshot,
    input  logic        bottom,
    input  logic [ 6:0] restart_interval,
    input  logic [23:0] block_bytes,
    // a record's key (merger)
    output logic        record_ready,
    input  logic        record_begin,
    input  logic        word_valid,
    input  logic [67:0] word,
    input  logic        word_is_trailer,
    input  logic [ 3:0] source,
    input  logic [20:0] value_length,
    input  logic        finished,
    // keys to be written, for the encoder and the index
    input  logic [ 4:0] key_address,
    output logic [67:0] key_word,
    input  logic [ 4:0] index_address,
    output logic [67:0] index_word,
    // what to do, for the encoder
    output logic        command_valid,
    input  logic        command_ready,
    input  logic        index_busy,
    output logic        command_drop,
    output logic        command_record,
    output logic        command_cut,
    output logic        command_first,
    output logic        command_restart,
    output logic        command_slot,
    output logic [ 3:0] command_source,
    output logic [ 6:0] command_shared,
    output logic [ 6:0] command_user_length,
    output logic [ 2:0] command_header_bytes,
    output logic [ 3:0] command_head_bytes,
    output logic [ 3:0] command_head_key,
    output logic [ 3:0] command_next_key,
    output logic [ 6:0] command_rest_key,
    output logic [20:0] command_value_length,
    output logic [23:0] command_offset,
    output logic [24:0] command_block_length,
    output logic [23:0] command_entries,
    // counters and errors
    output logic        dropped_shadowed,
    output logic        dropped_vanished,
    output logic        written,
    output logic        error_valid,
    output logic [ 3:0] error_code
);
  localparam logic [3:0] ERROR_ORDER = 4'd9, ERROR_KIND = 4'd10;
  localparam logic [6:0] RESTARTS_MAX = 7'd64;

  localparam logic [2:0] IDLE = 3'd0, KEY = 3'd1, JUDGE = 3'd2, RULE = 3'd3, SHARE = 3'd4, SIZE = 3'd5, FIT = 3'd6,
      GIVE = 3'd7;
  logic [2:0] state;

  // The last key seen, and two slots of keys to write: the last one written and the one at hand.
  logic [67:0] seen[16];
  logic [67:0] keys[32];
  logic [67:0] keys_again[32];
  logic [67:0] keys_third[32];
  logic last_slot;
  logic seen_any, shadow;
  logic [3:0] index;
  logic [67:0] seen_word, last_word;

  assign seen_word = seen[index];
  assign last_word = keys[{last_slot, index}];
  assign key_word = keys_again[key_address];
  assign index_word = keys_third[index_address];
  always_ff @(posedge clk) begin
    if (word_valid) begin
      seen[index]                    <= word;
      keys[{!last_slot, index}]       <= word;
      keys_again[{!last_slot, index}] <= word;
      keys_third[{!last_slot, index}] <= word;
    end
  end

  // A step behind the words: how they compare.
  logic late_valid, late_trailer, late_equal, late_less;
  logic [7:0] late_bytes;
  logic [3:0] late_count;
  logic [63:0] trailer;
  always_ff @(posedge clk) begin
    late_valid   <= !reset && word_valid;
    late_trailer <= word_is_trailer;
    late_equal   <= word == seen_word;
    late_less    <= word < seen_word;
    late_count   <= word[3:0];
    for (int j = 0; j < 8; j++) late_bytes[j] <= word[4+8*(7-j)+:8] == last_word[4+8*(7-j)+:8];
    if (word_valid) trailer <= ~word[67:4];
  end

  // Two steps behind: gathered over the key.
  logic same_so_far, same_user, disorder, sharing;
  logic [6:0] prefix, user_length, last_length, shared;
  logic [3:0] run;
  always_comb begin
    run = 4'd8;
    for (int j = 7; j >= 0; j--) if (!late_bytes[j]) run = 4'(j);
  end
  always_ff @(posedge clk) begin
    if (record_begin) begin
      same_so_far <= seen_any;
      disorder    <= 1'b0;
      sharing     <= 1'b1;
      prefix      <= 7'd0;
      user_length <= 7'd0;
    end else if (late_valid) begin
      same_so_far <= same_so_far && late_equal;
      if (same_so_far && late_less) disorder <= 1'b1;
      if (late_trailer) same_user <= same_so_far;
      else begin
        sharing     <= sharing && run == 4'd8;
        prefix      <= prefix + (sharing ? {3'b0, run} : 7'd0);
        user_length <= user_length + {3'b0, late_count == 4'd9 ? 4'd8 : late_count};
      end
    end
  end

  // The block being filled.
  logic block_empty;
  logic [24:0] filled, estimate;
  logic [6:0] restarts, since_restart, restarts_after;
  logic [23:0] entries;
  logic visible, deletion, restart, drop_shadowed, drop_vanished, flushing;
  logic [24:0] size;
  logic [2:0] header_bytes;
  logic [24:0] limit;

  assign restart = block_empty || since_restart == restart_interval;
  assign header_bytes = value_length[20:14] != 7'd0 ? 3'd5 : value_length[13:7] != 7'd0 ? 3'd4 : 3'd3;
  assign limit = {1'b0, block_bytes};

  // How the unshared user key is cut into chunks: what of its first word fits behind the header, the rest of that word
  // or the next one, and what comes after that.
  logic [6:0] unshared, behind;
  logic [3:0] in_word, in_first, in_head, room;
  assign in_first = unshared < {3'b0, in_word} ? unshared[3:0] : in_word;
  assign room = 4'd8 - {1'b0, command_header_bytes};
  assign behind = unshared - {3'b0, in_word};

  assign record_ready = state == IDLE && !command_valid && !index_busy;
  assign dropped_shadowed = state == SHARE && drop_shadowed;
  assign dropped_vanished = state == SHARE && !drop_shadowed && drop_vanished;
  assign written = state == SHARE && !drop_shadowed && !drop_vanished;

  always_ff @(posedge clk) begin
    if (word_valid) index <= index + 4'd1;
    if (state == IDLE) index <= 4'd0;
    error_valid <= 1'b0;
    if (command_ready) command_valid <= 1'b0;
    if (reset) begin
      state         <= IDLE;
      last_slot     <= 1'b0;
      seen_any      <= 1'b0;
      shadow        <= 1'b0;
      command_valid <= 1'b0;
      block_empty   <= 1'b1;
      last_length   <= 7'd0;
      filled        <= 25'd0;
      restarts      <= 7'd0;
      since_restart <= 7'd0;
      entries       <= 24'd0;
      flushing      <= 1'b0;
    end else begin
      unique case (state)
        IDLE: begin
          if (record_begin) state <= KEY;
          else if (finished && !flushing && record_ready) begin
            // The end: what is in the block is written, if anything.
            flushing       <= 1'b1;
            command_valid  <= 1'b1;
            command_drop   <= 1'b0;
            command_record <= 1'b0;
            command_cut    <= !block_empty;
          end
        end
        KEY: if (late_valid && late_trailer) state <= JUDGE;
        JUDGE: begin
          visible  <= trailer[63:8] <= snapshot;
          deletion <= trailer[7:0] == 8'd0;
          shared   <= prefix < last_length ? prefix : last_length;
          state    <= RULE;
          if (disorder || trailer[7:1] != 7'd0) begin
            error_valid <= 1'b1;
            error_code  <= disorder ? ERROR_ORDER : ERROR_KIND;
          end
        end
        RULE: begin
          drop_shadowed <= same_user && shadow;
          drop_vanished <= deletion && visible && bottom;
          shadow        <= visible;
          seen_any      <= 1'b1;
          shared        <= restart ? 7'd0 : shared < user_length ? shared : user_length;
          state         <= SHARE;
        end
        SHARE: begin
          size <= {4'b0, value_length} + {18'b0, user_length} + {22'b0, header_bytes} + 25'd8 - {18'b0, shared};
          command_record       <= 1'b1;
          command_drop         <= drop_shadowed || drop_vanished;
          command_cut          <= 1'b0;
          command_first        <= block_empty;
          command_restart      <= restart;
          command_slot         <= !last_slot;
          command_source       <= source;
          command_shared       <= shared;
          command_user_length  <= user_length;
          command_value_length <= value_length;
          command_offset       <= filled[23:0];
          command_header_bytes <= header_bytes;
          unshared             <= user_length - shared;
          in_word              <= 4'd8 - {1'b0, shared[2:0]};
          restarts_after       <= restarts + {6'b0, restart};
          state                <= drop_shadowed || drop_vanished ? GIVE : SIZE;
        end
        SIZE: begin
          filled        <= filled + size;
          restarts      <= restarts_after;
          since_restart <= restart ? 7'd1 : since_restart + 7'd1;
          entries       <= entries + 24'd1;
          block_empty   <= 1'b0;
          last_slot     <= !last_slot;
          last_length   <= user_length;
          in_word       <= in_first;
          in_head       <= in_first < room ? in_first : room;
          state         <= FIT;
        end
        FIT: begin
          estimate           <= filled + {16'b0, restarts, 2'b0} + 25'd4;
          command_head_key   <= in_head;
          command_head_bytes <= {1'b0, command_header_bytes} + in_head;
          if (in_word != in_head) begin
            command_next_key <= in_word - in_head;
            command_rest_key <= behind;
          end else begin
            command_next_key <= behind > 7'd8 ? 4'd8 : behind[3:0];
            command_rest_key <= behind > 7'd8 ? behind - 7'd8 : 7'd0;
          end
          state    <= GIVE;
        end
        default: begin
          command_valid <= 1'b1;
          state         <= IDLE;
          if (!command_drop) begin
            command_block_length <= estimate;
            command_entries      <= entries;
            if (estimate >= limit || (restarts == RESTARTS_MAX && since_restart == restart_interval)) begin
              command_cut <= 1'b1;
              block_empty <= 1'b1;
              filled      <= 25'd0;
              restarts    <= 7'd0;
              entries     <= 24'd0;
            end
          end
        end
      endcase
    end
  end
endmodule
