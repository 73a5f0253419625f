// Writes records as blocks: a stream of chunks of one to eight bytes for the packer.
//
//   HEAD     the header (three lengths) and as many bytes of the key's first unshared word as fit behind it
//   KEY      the rest of the unshared user key, word by word
//   TRAILER  sequence and kind
//   VALUE    straight from the input's queue of values; of dropped records into nothing
//   RESTART  the restart array and its length, four bytes each
//   END      the type byte and room for the checksum, which is filled in later (packer)
// The next record follows without a pause when its command is there.
module encoder #(
    parameter int N = 4
) (
    input  logic         clk,
    input  logic         reset,
    // what to do (record_filter)
    input  logic         command_valid,
    output logic         command_ready,
    input  logic         command_drop,
    input  logic         command_record,
    input  logic         command_cut,
    input  logic         command_first,
    input  logic         command_restart,
    input  logic         command_slot,
    input  logic [  3:0] command_source,
    input  logic [  6:0] command_shared,
    input  logic [  6:0] command_user_length,
    input  logic [  2:0] command_header_bytes,
    input  logic [  3:0] command_head_bytes,
    input  logic [  3:0] command_head_key,
    input  logic [  3:0] command_next_key,
    input  logic [  6:0] command_rest_key,
    input  logic [ 20:0] command_value_length,
    input  logic [ 23:0] command_offset,
    input  logic [ 24:0] command_block_length,
    input  logic [ 23:0] command_entries,
    output logic [  4:0] key_address,
    input  logic [ 67:0] key_word,
    // values
    input  logic [N-1:0] value_valid,
    input  logic [N*64-1:0] value_words,
    output logic [N-1:0] value_pop,
    // chunks for the packer
    input  logic         chunk_ready,
    output logic         chunk_valid,
    output logic [ 63:0] chunk,
    output logic [  3:0] chunk_bytes,
    output logic         chunk_begins,
    output logic         chunk_ends,
    output logic         chunk_flush,
    // blocks written, for the index
    output logic         block_valid,
    input  logic         block_ready,
    output logic [ 31:0] block_offset,
    output logic [ 24:0] block_length,
    output logic [ 23:0] block_entries,
    output logic         block_slot,
    output logic [  6:0] block_key_length,
    // status
    output logic         finished,
    output logic [ 31:0] bytes_written,
    output logic         idle,
    output logic         waits_for_value
);
  localparam logic [3:0] IDLE = 4'd0, HEAD = 4'd1, KEY = 4'd2, TRAILER = 4'd3, VALUE = 4'd4, DISCARD = 4'd5,
      RESTART = 4'd6, COUNT = 4'd7, END = 4'd8, FLUSH = 4'd9, DONE = 4'd10;
  logic [3:0] state, state_after, state_begin;

  logic record, cut, first, restart, slot;
  logic [6:0] shared, user_length, position;
  logic [20:0] value_length, value_left;
  logic [23:0] offset, entries;
  logic [24:0] length;
  logic [N-1:0] source_one;
  logic [3:0] head_bytes, key_bytes, next_key, trailer_index, key_at;
  logic [6:0] rest_key;
  logic [2:0] key_amount;

  logic [23:0] restart_offsets[64];
  logic [6:0] restarts, restart_at;

  // ---- The header.
  logic [39:0] header;
  logic [2:0] header_bytes;
  logic [6:0] unshared;
  assign unshared = user_length + 7'd8 - shared;
  always_comb begin
    header = {24'b0, 1'b0, unshared, 1'b0, shared};
    if (value_length[20:14] != 7'd0) begin
      header[39:16] = {1'b0, value_length[20:14], 1'b1, value_length[13:7], 1'b1, value_length[6:0]};
    end else if (value_length[13:7] != 7'd0) begin
      header[31:16] = {1'b0, value_length[13:7], 1'b1, value_length[6:0]};
    end else begin
      header[23:16] = {1'b0, value_length[6:0]};
    end
  end

  // ---- Key bytes: those of the word at hand, turned to the lane where they are wanted.
  logic [63:0] key_lanes, key_turned;
  logic [6:0] position_after;
  assign position_after = position + {3'b0, key_bytes};
  assign key_address = {slot, key_at};
  always_comb begin
    for (int j = 0; j < 8; j++) key_lanes[8*j+:8] = key_word[4+8*(7-j)+:8];
  end
  byte_rotate turn_key (.data(key_lanes), .amount(key_amount), .result(key_turned));

  // ---- The chosen input's value.
  logic [63:0] value_word;
  logic value_there;
  always_comb begin
    value_word = '0;
    for (int i = 0; i < N; i++) value_word = value_word | (value_words[64*i+:64] & {64{source_one[i]}});
  end
  assign value_there = (value_valid & source_one) != '0;
  assign waits_for_value = (state == VALUE || state == DISCARD) && !value_there;

  // ---- What this cycle sends.
  logic send, done_with_record, moves;
  logic [63:0] data;
  logic [3:0] bytes;
  always_comb begin
    send  = 1'b1;
    data  = key_turned;
    bytes = key_bytes;
    unique case (state)
      HEAD: begin
        for (int j = 0; j < 5; j++) if (3'(j) < header_bytes) data[8*j+:8] = header[8*j+:8];
        bytes = head_bytes;
      end
      KEY: ;
      TRAILER: begin
        data  = ~key_word[67:4];
        bytes = 4'd8;
      end
      VALUE: begin
        send  = value_there;
        data  = value_word;
        bytes = value_left[20:3] != 18'd0 ? 4'd8 : {1'b0, value_left[2:0]};
      end
      RESTART: begin
        data  = {40'b0, restart_offsets[restart_at[5:0]]};
        bytes = 4'd4;
      end
      COUNT: begin
        data  = {57'b0, restarts};
        bytes = 4'd4;
      end
      END: begin
        send  = block_ready;
        data  = 64'd0;
        bytes = 4'd5;
      end
      FLUSH: bytes = 4'd0;
      default: send = 1'b0;
    endcase
  end
  assign moves = chunk_ready && (send || (state == DISCARD && value_there));
  assign value_pop = moves && (state == DISCARD || state == VALUE) ? source_one : '0;

  // ---- What comes next.
  logic last_value;
  assign last_value = value_left <= 21'd8;
  always_comb begin
    state_after = IDLE;
    unique case (state)
      HEAD: state_after = next_key != 4'd0 ? KEY : TRAILER;
      KEY: state_after = rest_key != 7'd0 ? KEY : TRAILER;
      TRAILER: state_after = value_length != 21'd0 ? VALUE : cut ? RESTART : IDLE;
      VALUE: state_after = !last_value ? VALUE : cut ? RESTART : IDLE;
      DISCARD: state_after = !last_value ? DISCARD : IDLE;
      RESTART: state_after = restart_at + 7'd1 == restarts ? COUNT : RESTART;
      COUNT: state_after = END;
      END: state_after = record ? IDLE : FLUSH;
      FLUSH: state_after = DONE;
      default: state_after = state;
    endcase
    state_begin = !command_record ? (command_cut ? RESTART : FLUSH)
        : !command_drop ? HEAD : command_value_length != 21'd0 ? DISCARD : IDLE;
  end
  assign done_with_record = moves && state_after == IDLE;
  assign command_ready = (state == IDLE && chunk_ready) || done_with_record;
  assign idle = state == IDLE && !command_valid;

  always_ff @(posedge clk) begin
    if (reset) begin
      state         <= IDLE;
      chunk_valid   <= 1'b0;
      finished      <= 1'b0;
      bytes_written <= 32'd0;
      restarts      <= 7'd0;
    end else begin
      if (state == DONE && chunk_ready) finished <= 1'b1;
      if (chunk_ready) begin
        chunk_valid  <= send;
        chunk        <= data;
        chunk_bytes  <= bytes;
        chunk_begins <= state == HEAD && first;
        chunk_ends   <= state == END;
        chunk_flush  <= state == FLUSH;
      end
      if (moves) begin
        state <= state_after;
        unique case (state)
          HEAD: begin
            position   <= position_after;
            key_amount <= position_after[2:0];
            key_bytes  <= next_key;
            key_at     <= next_key != 4'd0 ? {1'b0, position_after[5:3]} : trailer_index;
          end
          // From the second of these on the words are whole but for the last.
          KEY: begin
            position   <= position_after;
            key_amount <= 3'd0;
            key_bytes  <= rest_key > 7'd8 ? 4'd8 : rest_key[3:0];
            rest_key   <= rest_key > 7'd8 ? rest_key - 7'd8 : 7'd0;
            key_at     <= rest_key != 7'd0 ? {1'b0, position_after[5:3]} : trailer_index;
          end
          VALUE, DISCARD: value_left <= value_left - 21'd8;
          RESTART: restart_at <= restart_at + 7'd1;
          END: begin
            bytes_written <= bytes_written + {7'b0, length} + 32'd5;
            restarts      <= 7'd0;
            restart_at    <= 7'd0;
          end
          default: ;
        endcase
        if (state == HEAD && restart) restarts <= restarts + 7'd1;
      end
      if (command_valid && command_ready) begin
        state        <= state_begin;
        record       <= command_record;
        cut          <= command_cut;
        if (command_record) begin
          first        <= command_first;
          restart      <= command_restart;
          value_length <= command_value_length;
          value_left   <= command_value_length;
          offset       <= command_offset;
          for (int i = 0; i < N; i++) source_one[i] <= command_source == 4'(i);
        end
        if (!command_drop && command_record) begin
          slot         <= command_slot;
          shared       <= command_shared;
          position     <= command_shared;
          user_length  <= command_user_length;
          length       <= command_block_length;
          entries      <= command_entries;
          header_bytes <= command_header_bytes;
          head_bytes   <= command_head_bytes;
          key_bytes    <= command_head_key;
          next_key     <= command_next_key;
          rest_key     <= command_rest_key;
          key_amount   <= command_shared[2:0] - command_header_bytes;
          key_at       <= {1'b0, command_shared[5:3]};
          // The trailer follows the words of the user key (an empty key has one, empty).
          trailer_index <= command_user_length == 7'd0 ? 4'd1 : 4'((command_user_length + 7'd7) >> 3);
        end
        restart_at <= 7'd0;
      end
    end
  end
  always_ff @(posedge clk) if (state == HEAD && restart) restart_offsets[restarts[5:0]] <= offset;

  assign block_valid = moves && state == END;
  assign block_offset = bytes_written;
  assign block_length = length;
  assign block_entries = entries;
  assign block_slot = slot;
  assign block_key_length = user_length;
endmodule
