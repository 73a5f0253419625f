// Writes records as blocks: a stream of chunks of one to eight bytes for the packer.
//
//   Head     the header (three lengths) and as many bytes of the key's first unshared word as fit behind it
//   Key      the rest of the unshared user key, word by word
//   Trailer  sequence and kind
//   Value    straight from the input's queue of values; of dropped records into nothing (Discard)
//   Restart  the restart array, four bytes each, and its length (Count)
//   End      the type byte and room for the checksum, which is filled in later (packer)
// The next record follows without a pause when its command is there.
module cip_encoder #(
    parameter int unsigned NumInputs = 4
) (
    input  logic                                    clk_i,
    input  logic                                    rst_i,
    // what to do (record filter), and the keys it keeps
    input  logic                                    command_valid_i,
    output logic                                    command_ready_o,
    input  cip_pkg::command_t                       command_i,
    output cip_pkg::slot_addr_t                     key_addr_o,
    input  cip_pkg::word_t                          key_bytes_i,
    // the inputs' values
    input  logic [NumInputs-1:0]                    value_valid_i,
    input  logic [NumInputs*cip_pkg::WordWidth-1:0] values_i,
    output logic [NumInputs-1:0]                    value_pop_o,
    // chunks for the packer
    output logic                                    chunk_valid_o,
    input  logic                                    chunk_ready_i,
    output cip_pkg::chunk_t                         chunk_o,
    // finished blocks, for the index
    output logic                                    block_valid_o,
    input  logic                                    block_ready_i,
    output cip_pkg::block_t                         block_o,
    // status
    output logic                                    finished_o,
    output cip_pkg::addr_t                          bytes_written_o,
    output logic                                    idle_o,
    output logic                                    waits_for_value_o
);
  typedef enum logic [3:0] {
    StIdle, StHead, StKey, StTrailer, StValue, StDiscard, StRestart, StCount, StEnd, StFlush, StDone
  } state_e;
  state_e state_q, state_d, state_after, state_begin;

  // The command at hand: of a record all of it, else its first fields.
  logic is_record_q, cut_q, first_q, restart_q, slot_q;
  cip_pkg::user_length_t shared_q, user_length_q, position_q, rest_key_q;
  cip_pkg::value_length_t value_length_q, value_left_q;
  cip_pkg::block_length_t offset_q, entries_q;
  cip_pkg::block_sum_t length_q;
  logic [NumInputs-1:0] source_q;  // one bit
  cip_pkg::lane_t header_bytes_q, key_amount_q;
  cip_pkg::lane_count_t head_bytes_q, key_bytes_q, next_key_q;
  cip_pkg::key_index_t trailer_index_q, key_at_q;

  logic [cip_pkg::BlockLengthWidth-1:0] restart_offsets[2**cip_pkg::RestartIndexWidth];
  cip_pkg::restart_count_t restarts_q, restart_at_q;
  cip_pkg::block_length_t restart_offset;
  cip_pkg::addr_t bytes_written_q;

  // ---- The header. A byte that is not sent may hold anything.
  cip_pkg::entry_header_t header;
  logic [cip_pkg::EntryHeaderWidth-1:0] header_bits;
  always_comb begin
    header.shared.more         = 1'b0;
    header.shared.digits       = shared_q;
    header.unshared.more       = 1'b0;
    header.unshared.digits     = user_length_q + cip_pkg::UserTrailerBytes - shared_q;
    header.value_low.more      = value_length_q[20:7] != '0;
    header.value_low.digits    = value_length_q[6:0];
    header.value_middle.more   = value_length_q[20:14] != '0;
    header.value_middle.digits = value_length_q[13:7];
    header.value_high.more     = 1'b0;
    header.value_high.digits   = value_length_q[20:14];
  end
  assign header_bits = header;

  // ---- Key bytes: those of the word at hand, turned to the lane where they are wanted.
  cip_pkg::word_t key_turned;
  cip_pkg::user_length_t position_after;
  assign position_after = position_q + {3'b0, key_bytes_q};
  assign key_addr_o     = {slot_q, key_at_q};
  cip_byte_rotate u_key (
      .data_i(cip_pkg::reversed(key_bytes_i)), .amount_i(key_amount_q), .data_o(key_turned)
  );

  // ---- The chosen input's value.
  cip_pkg::word_t value;
  logic value_there, last_value;
  always_comb begin
    value = '0;
    for (int i = 0; i < NumInputs; i++)
      if (source_q[i]) value = value | values_i[cip_pkg::WordWidth*i+:cip_pkg::WordWidth];
  end
  assign value_there       = (value_valid_i & source_q) != '0;
  assign last_value        = value_left_q <= 21'd8;
  assign waits_for_value_o = (state_q == StValue || state_q == StDiscard) && !value_there;

  // ---- What this cycle sends.
  logic send, moves;
  cip_pkg::word_t data;
  cip_pkg::lane_count_t bytes;
  assign restart_offset = restart_offsets[restart_at_q[cip_pkg::RestartIndexWidth-1:0]];
  always_comb begin
    send  = 1'b1;
    data  = key_turned;
    bytes = key_bytes_q;
    unique case (state_q)
      StHead: begin
        for (int j = 0; j < cip_pkg::EntryHeaderBytes; j++)
          if (cip_pkg::LaneWidth'(j) < header_bytes_q) data[8*j+:8] = header_bits[8*j+:8];
        bytes = head_bytes_q;
      end
      StKey: ;
      StTrailer: begin
        data  = ~key_bytes_i;
        bytes = 4'd8;
      end
      StValue: begin
        send  = value_there;
        data  = value;
        bytes = value_left_q[20:3] != '0 ? 4'd8 : {1'b0, value_left_q[2:0]};
      end
      StRestart: begin
        data  = cip_pkg::WordWidth'(restart_offset);
        bytes = cip_pkg::RestartBytes[3:0];
      end
      StCount: begin
        data  = cip_pkg::WordWidth'(restarts_q);
        bytes = cip_pkg::RestartBytes[3:0];
      end
      StEnd: begin
        send  = block_ready_i;
        data  = '0;
        bytes = cip_pkg::TypeAndCrcBytes[3:0];
      end
      StFlush: bytes = 4'd0;
      default: send = 1'b0;
    endcase
  end
  assign moves       = chunk_ready_i && (send || (state_q == StDiscard && value_there));
  assign value_pop_o = moves && (state_q == StDiscard || state_q == StValue) ? source_q : '0;

  // ---- What comes next: after this chunk, and with the next command.
  logic take_command, take_record;
  always_comb begin
    state_after = state_q;
    unique case (state_q)
      StHead:    state_after = next_key_q != '0 ? StKey : StTrailer;
      StKey:     state_after = rest_key_q != '0 ? StKey : StTrailer;
      StTrailer: state_after = value_length_q != '0 ? StValue : cut_q ? StRestart : StIdle;
      StValue:   state_after = !last_value ? StValue : cut_q ? StRestart : StIdle;
      StDiscard: state_after = !last_value ? StDiscard : StIdle;
      StRestart: state_after = restart_at_q + 7'd1 == restarts_q ? StCount : StRestart;
      StCount:   state_after = StEnd;
      StEnd:     state_after = is_record_q ? StIdle : StFlush;
      StFlush:   state_after = StDone;
      default:   ;
    endcase
    state_begin = !command_i.is_record ? (command_i.cut ? StRestart : StFlush)
        : !command_i.drop ? StHead : command_i.value_length != '0 ? StDiscard : StIdle;
  end
  assign state_d         = take_command ? state_begin : moves ? state_after : state_q;
  assign command_ready_o = (state_q == StIdle && chunk_ready_i) || (moves && state_after == StIdle);
  assign take_command    = command_valid_i && command_ready_o;
  assign take_record     = take_command && command_i.is_record;
  assign idle_o          = state_q == StIdle && !command_valid_i;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      state_q         <= StIdle;
      chunk_valid_o   <= 1'b0;
      finished_o      <= 1'b0;
      bytes_written_q <= '0;
      restarts_q      <= '0;
    end else begin
      state_q <= state_d;
      if (state_q == StDone && chunk_ready_i) finished_o <= 1'b1;
      if (chunk_ready_i) chunk_valid_o <= send;
      if (moves && state_q == StHead && restart_q) restarts_q <= restarts_q + 7'd1;
      if (moves && state_q == StEnd) begin
        bytes_written_q <= bytes_written_q + {7'b0, length_q} + {7'b0, cip_pkg::TypeAndCrcBytes};
        restarts_q      <= '0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (chunk_ready_i) begin
      chunk_o.data   <= data;
      chunk_o.bytes  <= bytes;
      chunk_o.begins <= state_q == StHead && first_q;
      chunk_o.ends   <= state_q == StEnd;
      chunk_o.flush  <= state_q == StFlush;
    end
    if (state_q == StHead && restart_q) restart_offsets[restarts_q[cip_pkg::RestartIndexWidth-1:0]] <= offset_q;
  end

  always_ff @(posedge clk_i) begin
    if (moves) begin
      unique case (state_q)
        StHead: begin
          position_q   <= position_after;
          key_amount_q <= position_after[2:0];
          key_bytes_q  <= next_key_q;
          key_at_q     <= next_key_q != '0 ? {1'b0, position_after[5:3]} : trailer_index_q;
        end
        // From the second of these on the words are whole but for the last.
        StKey: begin
          position_q   <= position_after;
          key_amount_q <= '0;
          key_bytes_q  <= rest_key_q > 7'd8 ? 4'd8 : rest_key_q[3:0];
          rest_key_q   <= rest_key_q > 7'd8 ? rest_key_q - 7'd8 : 7'd0;
          key_at_q     <= rest_key_q != '0 ? {1'b0, position_after[5:3]} : trailer_index_q;
        end
        StValue, StDiscard: value_left_q <= value_left_q - 21'd8;
        StRestart: restart_at_q <= restart_at_q + 7'd1;
        default: ;
      endcase
    end
    if (take_command) begin
      is_record_q  <= command_i.is_record;
      cut_q        <= command_i.cut;
      restart_at_q <= '0;
    end
    if (take_record) begin
      first_q        <= command_i.first;
      restart_q      <= command_i.restart;
      value_length_q <= command_i.value_length;
      value_left_q   <= command_i.value_length;
      offset_q       <= command_i.offset;
      for (int i = 0; i < NumInputs; i++) source_q[i] <= command_i.source == cip_pkg::InputIdWidth'(i);
    end
    if (take_record && !command_i.drop) begin
      slot_q          <= command_i.slot;
      shared_q        <= command_i.shared;
      position_q      <= command_i.shared;
      user_length_q   <= command_i.user_length;
      length_q        <= command_i.block_length;
      entries_q       <= command_i.entries;
      header_bytes_q  <= command_i.header_bytes;
      head_bytes_q    <= command_i.head_bytes;
      key_bytes_q     <= command_i.head_key;
      next_key_q      <= command_i.next_key;
      rest_key_q      <= command_i.rest_key;
      key_amount_q    <= command_i.shared[2:0] - command_i.header_bytes;
      key_at_q        <= {1'b0, command_i.shared[5:3]};
      trailer_index_q <= cip_pkg::key_words(command_i.user_length);
    end
  end

  assign block_valid_o       = moves && state_q == StEnd;
  assign block_o.offset      = bytes_written_q;
  assign block_o.length      = length_q;
  assign block_o.entries     = entries_q;
  assign block_o.slot        = slot_q;
  assign block_o.user_length = user_length_q;
  assign bytes_written_o     = bytes_written_q;
endmodule
