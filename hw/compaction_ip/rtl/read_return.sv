// What comes back from memory: checks every byte of it and hands it to the decoders' queues.
//
// One stream serves all inputs. The state of each input's checksum lies in LUT RAM, so bursts of different inputs may
// alternate without a pause. Three steps, then the queue:
//   1  the word; the checksum moves on; the last words of a block go to the finisher
//   2  for a tail: the restart count and the type, cut out of the last two words
//   3  for a tail: where the entries end
// A tail's place in the stream carries the command word that opens the block for the decoder:
//   {end of input, entry bytes[23:0], words[21:0], start lane[2:0]} so that this costs no cycle.
// The finisher adds the odd bytes at the block's end to its checksum one per cycle and compares with the stored one.
module read_return #(
    parameter int N = 4
) (
    input  logic         clk,
    input  logic         reset,
    // what was asked (burst_issuer)
    input  logic         asked_valid,
    input  logic [ 39:0] asked,
    output logic         asked_ready,
    // read data channel
    input  logic         r_valid,
    output logic         r_ready,
    input  logic [ 63:0] r_data,
    input  logic         r_error,
    // descriptors, for the walker
    output logic         answer_valid,
    output logic [ 63:0] answer_data,
    output logic         answer_last,
    output logic         answer_crc_good,
    // the decoders' queues
    output logic [N-1:0] queue_write,
    output logic [ 63:0] queue_data,
    // status
    output logic         idle,
    output logic         waiting,
    output logic         block_checked,
    output logic         error_valid,
    output logic [  3:0] error_code,
    output logic [  3:0] error_input
);
  localparam logic [1:0] KIND_DESCRIPTOR = 2'd0, KIND_TAIL = 2'd1, KIND_BODY = 2'd2, KIND_END = 2'd3;
  localparam logic [3:0] ERROR_BUS = 4'd1, ERROR_BLOCK_TYPE = 4'd4, ERROR_BLOCK_CRC = 4'd5, ERROR_RESTARTS = 4'd6;

  // The bursts under way, oldest first.
  logic [39:0] asked_queue[32];
  logic [5:0] asked_head, asked_tail;
  logic asked_any;
  logic [39:0] oldest;
  logic [3:0] beat;

  logic take, take_end;

  assign asked_any = asked_head != asked_tail;
  assign asked_ready = asked_head[4:0] != asked_tail[4:0] || asked_head[5] == asked_tail[5];
  assign oldest = asked_queue[asked_head[4:0]];

  logic [24:0] extent_in;
  logic last_in, first_in;
  logic [3:0] beats_in, id_in;
  logic [1:0] kind_in;
  logic [2:0] lane_in;
  assign {extent_in, last_in, first_in, beats_in, id_in, kind_in, lane_in} = oldest;

  // Step 1.
  logic one_valid, one_first, one_last, one_hold, one_bad;
  logic [63:0] one_data;
  logic [24:0] one_extent;
  logic [3:0] one_id;
  logic [1:0] one_kind;
  logic [2:0] one_lane;

  logic last_beat;
  assign last_beat = kind_in == KIND_END || beat == beats_in - 4'd1;
  assign take = asked_any && kind_in != KIND_END && r_valid && r_ready;
  assign take_end = asked_any && kind_in == KIND_END && !one_hold;
  assign r_ready = asked_any && kind_in != KIND_END && !one_hold;
  assign waiting = asked_any && kind_in != KIND_END && !r_valid;

  always_ff @(posedge clk) begin
    if (asked_valid && asked_ready) asked_queue[asked_tail[4:0]] <= asked;
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      asked_head <= 6'd0;
      asked_tail <= 6'd0;
      beat       <= 4'd0;
      one_valid  <= 1'b0;
      one_bad    <= 1'b0;
    end else begin
      if (asked_valid && asked_ready) asked_tail <= asked_tail + 6'd1;
      if ((take || take_end) && last_beat) asked_head <= asked_head + 6'd1;
      if (take) beat <= last_beat ? 4'd0 : beat + 4'd1;
      if (!one_hold) begin
        one_valid <= take || take_end;
        one_bad   <= take && r_error;
      end
    end
    if (!one_hold) begin
      one_data   <= r_data;
      one_extent <= extent_in;
      one_id     <= id_in;
      one_kind   <= kind_in;
      one_lane   <= lane_in;
      one_first  <= first_in && beat == 4'd0;
      one_last   <= last_in && last_beat;
    end
  end

  // The running checksum per input, the words it still covers, and the word before this one.
  logic [31:0] crc_state[16];
  logic [21:0] crc_words[16];
  logic [63:0] word_before[16];
  logic [31:0] crc_begin, crc_from, crc_next;
  logic [21:0] covered;
  logic [63:0] crc_data, before_data;
  logic crc_step, one_go;

  assign one_go = one_valid && !one_hold;
  assign covered = one_first ? one_extent[24:3] : crc_words[one_id];
  assign crc_step = one_kind == KIND_DESCRIPTOR || covered != 22'd0;
  assign crc_from = one_first ? crc_begin : crc_state[one_id];
  assign before_data = word_before[one_id];

  crc32c_start begin_state (.lane(one_lane), .state(crc_begin));
  crc32c_word step_word (.state(crc_from), .data(crc_data), .next(crc_next));

  always_comb begin
    crc_data = one_data;
    // Bytes before the block, and the place of a descriptor's own checksum, count as zeros.
    for (int j = 0; j < 8; j++) if (one_first && one_kind == KIND_BODY && 3'(j) < one_lane) crc_data[8*j+:8] = 8'd0;
    if (one_kind == KIND_DESCRIPTOR && one_last) crc_data[63:32] = 32'd0;
  end

  always_ff @(posedge clk) begin
    if (one_go) word_before[one_id] <= one_data;
    if (one_go && (one_kind == KIND_BODY || one_kind == KIND_DESCRIPTOR)) begin
      if (crc_step) crc_state[one_id] <= crc_next;
      crc_words[one_id] <= covered == 22'd0 ? 22'd0 : covered - 22'd1;
    end
  end

  // A descriptor's checksum is stored plainly in the upper half of its last word.
  logic told_valid, told_last;
  logic [63:0] told_data;
  logic [31:0] told_crc;
  always_ff @(posedge clk) begin
    told_valid      <= !reset && one_go && one_kind == KIND_DESCRIPTOR;
    told_data       <= one_data;
    told_last       <= one_last;
    told_crc        <= ~crc_next;
    answer_valid    <= !reset && told_valid;
    answer_data     <= told_data;
    answer_last     <= told_last;
    answer_crc_good <= told_crc == told_data[63:32];
  end

  // The finisher. `remaining` counts the bytes up to and with the type.
  logic finishing, comparing;
  logic [3:0] remaining;
  logic [31:0] finish_state, finish_next, masked;
  logic [127:0] finish_data;
  logic [3:0] finish_id;
  logic finish_start;

  assign finish_start = one_valid && one_kind == KIND_BODY && one_last;
  assign one_hold = finish_start && (finishing || comparing);
  crc32c_byte step_byte (.state(finish_state), .data(finish_data[7:0]), .next(finish_next));
  assign masked = {~finish_state[14:0], ~finish_state[31:15]} + 32'ha282ead8;

  logic crc_bad;
  always_ff @(posedge clk) begin
    if (reset) begin
      finishing     <= 1'b0;
      comparing     <= 1'b0;
      crc_bad       <= 1'b0;
      block_checked <= 1'b0;
    end else begin
      block_checked <= comparing;
      crc_bad       <= comparing && masked != finish_data[31:0];
      comparing     <= 1'b0;
      if (finish_start && !one_hold) finishing <= 1'b1;
      else if (finishing && remaining == 4'd1) begin
        finishing <= 1'b0;
        comparing <= 1'b1;
      end
    end
    if (finish_start && !one_hold) begin
      remaining    <= {1'b0, one_extent[2:0]} + 4'd1;
      finish_state <= crc_state[one_id];
      finish_data  <= one_extent[2] ? {one_data, before_data} : {64'b0, one_data};
      finish_id    <= one_id;
    end else if (finishing) begin
      remaining    <= remaining - 4'd1;
      finish_state <= finish_next;
      finish_data  <= {8'b0, finish_data[127:8]};
    end
  end

  // Step 2: the tail's five bytes, from wherever they lie in the last two words.
  logic [2:0] tail_lane;
  logic [63:0] tail_mixed;
  logic [31:0] tail_restarts;
  logic [7:0] tail_type;
  logic [23:0] unused_tail;
  logic two_valid, three_valid;
  logic [63:0] two_data, three_data;
  logic [3:0] two_id, three_id;
  logic [1:0] two_kind;
  logic [2:0] two_lane;
  logic [24:0] two_extent;
  logic [31:0] two_restarts;
  logic [7:0] two_type;
  logic two_bad;

  assign tail_lane = one_lane + one_extent[2:0] - 3'd4;
  always_comb begin
    for (int j = 0; j < 8; j++)
      tail_mixed[8*j+:8] = tail_lane > 3'd3 && 3'(j) >= tail_lane ? before_data[8*j+:8] : one_data[8*j+:8];
  end
  byte_rotate turn_tail (.data(tail_mixed), .amount(tail_lane), .result({unused_tail, tail_type, tail_restarts}));

  // Step 3: the entries end where the restart array begins.
  logic [24:0] entries;
  logic [21:0] block_words;
  logic restarts_bad;
  assign entries = {1'b0, two_extent[23:0]} - {two_restarts[22:0], 2'b0} - 25'd4;
  assign restarts_bad = two_restarts[31:22] != 10'd0 || two_restarts[21:0] == 22'd0 || entries[24];
  assign block_words = 22'(({22'b0, two_lane} + two_extent + 25'd12) >> 3);

  logic tail_bad_type, tail_bad_restarts, bus_bad;
  logic [3:0] bad_id, three_bad_id;
  always_ff @(posedge clk) begin
    if (reset) begin
      two_valid         <= 1'b0;
      three_valid       <= 1'b0;
      tail_bad_type     <= 1'b0;
      tail_bad_restarts <= 1'b0;
      bus_bad           <= 1'b0;
    end else begin
      two_valid         <= one_go && one_kind != KIND_DESCRIPTOR && (one_kind != KIND_TAIL || one_last);
      three_valid       <= two_valid && !two_bad;
      bus_bad           <= one_go && one_bad;
      tail_bad_type     <= two_valid && two_kind == KIND_TAIL && two_type != 8'd0;
      tail_bad_restarts <= two_valid && two_kind == KIND_TAIL && two_type == 8'd0 && restarts_bad;
    end
    bad_id       <= one_id;
    three_bad_id <= two_id;
    two_data     <= one_data;
    two_id       <= one_id;
    two_kind     <= one_kind;
    two_lane     <= one_lane;
    two_extent   <= one_extent;
    two_restarts <= tail_restarts;
    two_type     <= tail_type;
    three_id     <= two_id;
    three_data   <= two_kind == KIND_BODY ? two_data
        : {two_kind == KIND_END, 14'b0, entries[23:0], block_words, two_lane};
  end
  assign two_bad = two_kind == KIND_TAIL && (two_type != 8'd0 || restarts_bad);

  assign queue_data = three_data;
  always_comb for (int i = 0; i < N; i++) queue_write[i] = three_valid && three_id == 4'(i);

  assign idle = !asked_any && !one_valid && !two_valid && !three_valid && !finishing && !comparing;

  // One error is enough; the first in the stream's order wins in the control unit.
  assign error_valid = bus_bad || tail_bad_type || tail_bad_restarts || crc_bad;
  assign error_code = bus_bad ? ERROR_BUS : tail_bad_type ? ERROR_BLOCK_TYPE : tail_bad_restarts ? ERROR_RESTARTS
      : ERROR_BLOCK_CRC;
  assign error_input = bus_bad ? bad_id : tail_bad_type || tail_bad_restarts ? three_bad_id : finish_id;
endmodule
