// What comes back from memory: checks every byte of it and hands it to the decoders' queues.
//
// One stream serves all inputs. The state of each input's checksum lies in LUT RAM, so bursts of different inputs may
// alternate without a pause. Three steps, then the queue:
//   1  the word; the checksum moves on; the last words of a block go to the finisher
//   2  for a tail: the restart count and the type, cut out of the last two words
//   3  for a tail: where the entries end
// A tail's place in the stream carries the word that opens the block for the decoder (`block_open_t`), so that this
// costs no cycle.
// The finisher adds the odd bytes at the block's end to its checksum one per cycle and compares with the stored one.
module cip_read_return #(
    parameter int unsigned NumInputs = 4
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    // what was asked (burst issuer)
    input  logic                 fetch_valid_i,
    output logic                 fetch_ready_o,
    input  cip_pkg::fetch_t      fetch_i,
    // read data channel
    input  logic                 r_valid_i,
    output logic                 r_ready_o,
    input  cip_pkg::word_t       r_data_i,
    input  logic                 r_error_i,
    // descriptors, for the walker
    output logic                 desc_rsp_valid_o,
    output cip_pkg::desc_rsp_t   desc_rsp_o,
    // the decoders' queues
    output logic [NumInputs-1:0] queue_write_o,
    output cip_pkg::word_t       queue_data_o,
    // status
    output logic                 idle_o,
    output logic                 waiting_o,
    output logic                 block_checked_o,
    output logic                 error_valid_o,
    output cip_pkg::error_t      error_o
);
  // ---- The bursts under way, oldest first.
  localparam int unsigned FetchDepthBits = 5;
  logic [cip_pkg::FetchWidth-1:0] fetches[2**FetchDepthBits];
  logic [FetchDepthBits:0] fetch_head_q, fetch_tail_q;
  cip_pkg::fetch_t oldest;
  cip_pkg::beat_t beat_q;
  logic any_fetch, is_end, last_beat, take, take_end;

  assign any_fetch     = fetch_head_q != fetch_tail_q;
  assign fetch_ready_o = fetch_head_q[FetchDepthBits-1:0] != fetch_tail_q[FetchDepthBits-1:0]
      || fetch_head_q[FetchDepthBits] == fetch_tail_q[FetchDepthBits];
  assign oldest        = fetches[fetch_head_q[FetchDepthBits-1:0]];
  assign is_end        = oldest.kind == cip_pkg::FetchEnd;
  always_ff @(posedge clk_i)
    if (fetch_valid_i && fetch_ready_o) fetches[fetch_tail_q[FetchDepthBits-1:0]] <= fetch_i;

  // ---- Step 1.
  logic one_valid_q, one_first_q, one_last_q, one_bad_q, one_hold, one_go;
  logic one_desc, one_tail, one_body;
  cip_pkg::word_t one_data_q;
  cip_pkg::block_sum_t one_extent_q;
  cip_pkg::input_id_t one_id_q;
  cip_pkg::fetch_kind_e one_kind_q;
  cip_pkg::lane_t one_lane_q;

  assign last_beat = is_end || beat_q == oldest.beats - 4'd1;
  assign r_ready_o = any_fetch && !is_end && !one_hold;
  assign take      = r_valid_i && r_ready_o;
  assign take_end  = any_fetch && is_end && !one_hold;
  assign waiting_o = any_fetch && !is_end && !r_valid_i;
  assign one_go    = one_valid_q && !one_hold;
  assign one_desc  = one_kind_q == cip_pkg::FetchDescriptor;
  assign one_tail  = one_kind_q == cip_pkg::FetchTail;
  assign one_body  = one_kind_q == cip_pkg::FetchBody;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      fetch_head_q <= '0;
      fetch_tail_q <= '0;
      beat_q       <= '0;
      one_valid_q  <= 1'b0;
      one_bad_q    <= 1'b0;
    end else begin
      if (fetch_valid_i && fetch_ready_o) fetch_tail_q <= fetch_tail_q + 1'b1;
      if ((take || take_end) && last_beat) fetch_head_q <= fetch_head_q + 1'b1;
      if (take) beat_q <= last_beat ? 4'd0 : beat_q + 4'd1;
      if (!one_hold) begin
        one_valid_q <= take || take_end;
        one_bad_q   <= take && r_error_i;
      end
    end
    if (!one_hold) begin
      one_data_q   <= r_data_i;
      one_extent_q <= oldest.extent;
      one_id_q     <= oldest.id;
      one_kind_q   <= oldest.kind;
      one_lane_q   <= oldest.lane;
      one_first_q  <= oldest.first && beat_q == '0;
      one_last_q   <= oldest.last && last_beat;
    end
  end

  // ---- The running checksum per input, the words it still covers, and the word before this one.
  logic [cip_pkg::CrcWidth-1:0] crc_state[cip_pkg::InputSlots];
  logic [cip_pkg::BlockWordsWidth-1:0] crc_words[cip_pkg::InputSlots];
  logic [cip_pkg::WordWidth-1:0] word_before[cip_pkg::InputSlots];
  cip_pkg::crc_t crc_before, crc_begin, crc_from, crc_next;
  cip_pkg::block_words_t covered;
  cip_pkg::word_t crc_data, before_data;
  logic crc_step;

  assign crc_before  = crc_state[one_id_q];
  assign before_data = word_before[one_id_q];
  assign covered     = one_first_q ? one_extent_q[24:3] : crc_words[one_id_q];
  assign crc_step    = one_desc || covered != '0;
  assign crc_from    = one_first_q ? crc_begin : crc_before;
  cip_crc32c_start u_start (.lane_i(one_lane_q), .state_o(crc_begin));
  cip_crc32c_word u_word (.state_i(crc_from), .data_i(crc_data), .state_o(crc_next));

  always_comb begin
    crc_data = one_data_q;
    // Bytes before the block, and the place of a descriptor's own checksum, count as zeros.
    for (int j = 0; j < cip_pkg::WordBytes; j++)
      if (one_first_q && one_body && cip_pkg::LaneWidth'(j) < one_lane_q) crc_data[8*j+:8] = 8'd0;
    if (one_desc && one_last_q) crc_data[63:32] = '0;
  end
  always_ff @(posedge clk_i) begin
    if (one_go) word_before[one_id_q] <= one_data_q;
    if (one_go && (one_body || one_desc)) begin
      if (crc_step) crc_state[one_id_q] <= crc_next;
      crc_words[one_id_q] <= covered == '0 ? 22'd0 : covered - 22'd1;
    end
  end

  // ---- A descriptor's checksum is stored plainly in the upper half of its last word.
  logic told_valid_q, told_last_q;
  cip_pkg::word_t told_data_q;
  cip_pkg::crc_t told_crc_q;
  always_ff @(posedge clk_i) begin
    told_valid_q        <= !rst_i && one_go && one_desc;
    told_data_q         <= one_data_q;
    told_last_q         <= one_last_q;
    told_crc_q          <= ~crc_next;
    desc_rsp_valid_o    <= !rst_i && told_valid_q;
    desc_rsp_o.data     <= told_data_q;
    desc_rsp_o.last     <= told_last_q;
    desc_rsp_o.crc_good <= told_crc_q == told_data_q[63:32];
  end

  // ---- The finisher. `remaining` counts the bytes up to and with the type.
  logic finishing_q, comparing_q, crc_bad_q, finish_wanted, finish_start;
  cip_pkg::lane_count_t remaining_q;
  cip_pkg::crc_t finish_crc_q, finish_next, masked;
  logic [2*cip_pkg::WordWidth-1:0] finish_data_q;
  cip_pkg::input_id_t finish_id_q;

  assign finish_wanted = one_valid_q && one_body && one_last_q;
  assign one_hold      = finish_wanted && (finishing_q || comparing_q);
  assign finish_start  = finish_wanted && !one_hold;
  cip_crc32c_byte u_byte (.state_i(finish_crc_q), .data_i(finish_data_q[7:0]), .state_o(finish_next));
  assign masked = {~finish_crc_q[14:0], ~finish_crc_q[31:15]} + cip_pkg::CrcMask;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      finishing_q     <= 1'b0;
      comparing_q     <= 1'b0;
      crc_bad_q       <= 1'b0;
      block_checked_o <= 1'b0;
    end else begin
      block_checked_o <= comparing_q;
      crc_bad_q       <= comparing_q && masked != finish_data_q[cip_pkg::CrcWidth-1:0];
      comparing_q     <= 1'b0;
      if (finish_start) finishing_q <= 1'b1;
      else if (finishing_q && remaining_q == 4'd1) begin
        finishing_q <= 1'b0;
        comparing_q <= 1'b1;
      end
    end
    if (finish_start) begin
      remaining_q   <= {1'b0, one_extent_q[2:0]} + 4'd1;
      finish_crc_q  <= crc_before;
      finish_data_q <= one_extent_q[2] ? {one_data_q, before_data} : {64'b0, one_data_q};
      finish_id_q   <= one_id_q;
    end else if (finishing_q) begin
      remaining_q   <= remaining_q - 4'd1;
      finish_crc_q  <= finish_next;
      finish_data_q <= {8'b0, finish_data_q[127:8]};
    end
  end

  // ---- Step 2: the tail's five bytes, from wherever they lie in the last two words.
  cip_pkg::lane_t tail_lane;
  cip_pkg::word_t tail_mixed;
  logic [31:0] tail_restarts;
  logic [7:0] tail_type;
  logic [23:0] unused_tail;
  logic two_valid_q, two_tail, two_bad;
  cip_pkg::word_t two_data_q;
  cip_pkg::input_id_t two_id_q;
  cip_pkg::fetch_kind_e two_kind_q;
  cip_pkg::lane_t two_lane_q;
  cip_pkg::block_sum_t two_extent_q;
  logic [31:0] two_restarts_q;
  logic [7:0] two_type_q;

  assign tail_lane = one_lane_q + one_extent_q[2:0] - 3'd4;
  always_comb begin
    for (int j = 0; j < cip_pkg::WordBytes; j++)
      tail_mixed[8*j+:8] = tail_lane > 3'd3 && cip_pkg::LaneWidth'(j) >= tail_lane ? before_data[8*j+:8]
          : one_data_q[8*j+:8];
  end
  cip_byte_rotate u_tail (
      .data_i(tail_mixed), .amount_i(tail_lane), .data_o({unused_tail, tail_type, tail_restarts})
  );

  // ---- Step 3: the entries end where the restart array begins.
  cip_pkg::block_sum_t entries;
  cip_pkg::block_open_t opening;
  logic restarts_bad, three_valid_q;
  cip_pkg::word_t three_data_q;
  cip_pkg::input_id_t three_id_q;
  assign entries      = {1'b0, two_extent_q[23:0]} - {two_restarts_q[22:0], 2'b0} - cip_pkg::RestartBytes;
  assign restarts_bad = two_restarts_q[31:22] != '0 || two_restarts_q[21:0] == '0 || entries[24];
  assign two_tail     = two_kind_q == cip_pkg::FetchTail;
  assign two_bad      = two_tail && (two_type_q != '0 || restarts_bad);
  // The block's words: from lane 0 of the first to the end of the trailer, rounded up.
  assign opening.is_end      = two_kind_q == cip_pkg::FetchEnd;
  assign opening.entry_bytes = entries[23:0];
  assign opening.words       = cip_pkg::BlockWordsWidth'(
      ({22'b0, two_lane_q} + two_extent_q + cip_pkg::TrailerRounded) >> cip_pkg::LaneWidth);
  assign opening.lane        = two_lane_q;

  logic tail_bad_type_q, tail_bad_restarts_q, bus_bad_q;
  cip_pkg::input_id_t bad_id_q;
  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      two_valid_q         <= 1'b0;
      three_valid_q       <= 1'b0;
      tail_bad_type_q     <= 1'b0;
      tail_bad_restarts_q <= 1'b0;
      bus_bad_q           <= 1'b0;
    end else begin
      two_valid_q         <= one_go && !one_desc && (!one_tail || one_last_q);
      three_valid_q       <= two_valid_q && !two_bad;
      bus_bad_q           <= one_go && one_bad_q;
      tail_bad_type_q     <= two_valid_q && two_tail && two_type_q != '0;
      tail_bad_restarts_q <= two_valid_q && two_tail && two_type_q == '0 && restarts_bad;
    end
    bad_id_q       <= one_id_q;
    two_data_q     <= one_data_q;
    two_id_q       <= one_id_q;
    two_kind_q     <= one_kind_q;
    two_lane_q     <= one_lane_q;
    two_extent_q   <= one_extent_q;
    two_restarts_q <= tail_restarts;
    two_type_q     <= tail_type;
    three_id_q     <= two_id_q;
    three_data_q   <= two_kind_q == cip_pkg::FetchBody ? two_data_q : cip_pkg::WordWidth'(opening);
  end

  assign queue_data_o = three_data_q;
  always_comb
    for (int i = 0; i < NumInputs; i++)
      queue_write_o[i] = three_valid_q && three_id_q == cip_pkg::InputIdWidth'(i);

  assign idle_o = !any_fetch && !one_valid_q && !two_valid_q && !three_valid_q && !finishing_q && !comparing_q;

  // One error is enough; the first in the stream's order wins in the control unit.
  assign error_valid_o = bus_bad_q || tail_bad_type_q || tail_bad_restarts_q || crc_bad_q;
  always_comb begin
    error_o.code = cip_pkg::ErrBlockCrc;
    error_o.id   = finish_id_q;
    if (bus_bad_q) begin
      error_o.code = cip_pkg::ErrBus;
      error_o.id   = bad_id_q;
    end else if (tail_bad_type_q || tail_bad_restarts_q) begin
      error_o.code = tail_bad_type_q ? cip_pkg::ErrBlockType : cip_pkg::ErrRestarts;
      error_o.id   = three_id_q;
    end
  end
endmodule
